// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <system_error>

#include "lib/log.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kMaxUnlocked = 60;  // seconds from mkdtemp to flock, on a machine that stands

int open_folder(const fs::path& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// The lock goes with the process that holds it.
bool is_left(int folder) {
  struct stat status = {};
  return fstat(folder, &status) == 0 && status.st_uid == getuid() &&
         std::time(nullptr) - status.st_mtime > kMaxUnlocked &&
         flock(folder, LOCK_EX | LOCK_NB) == 0;
}

void remove_left(const fs::path& inside, const std::string& prefix) {
  std::error_code failure;
  for (fs::directory_iterator entry(inside, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    const int folder = open_folder(entry->path());
    if (folder < 0) continue;
    if (is_left(folder)) remove_folder(entry->path());
    close(folder);
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& inside, const std::string& name) {
  remove_left(inside, name + "-");
  std::string pattern = (inside / (name + "-XXXXXX")).string();
  if (mkdtemp(pattern.data()) == nullptr)
    throw fs::filesystem_error("cannot be made", pattern,
                               std::error_code(errno, std::generic_category()));
  path_ = pattern;
  lock_ = open_folder(path_);
  flock(lock_, LOCK_EX | LOCK_NB);
}

ScratchFolder::~ScratchFolder() {
  remove_folder(path_);
  close(lock_);
}

void remove_folder(const fs::path& folder) {
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(folder, failure), end; entry != end;
       entry.increment(failure)) {
    if (entry->is_directory(failure) && !entry->is_symlink(failure) &&
        access(entry->path().c_str(), R_OK | X_OK) != 0)
      fs::permissions(entry->path(), fs::perms::owner_all, failure);
  }
  fs::remove_all(folder, failure);
  if (failure) log::warn("{} cannot be removed: {}", folder.string(), failure.message());
}

}  // namespace ddp_doctor
