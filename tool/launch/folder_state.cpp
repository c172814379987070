// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/folder_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxEntries = 200'000;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 29;
constexpr std::size_t kMaxCopies = 5'000;

std::pair<std::int64_t, std::int64_t> time_of(const timespec& time) {
  return {time.tv_sec, time.tv_nsec};
}

// A folder is the same whatever was done in it.
bool same(const struct stat& a, const struct stat& b) {
  if (S_ISDIR(a.st_mode) && S_ISDIR(b.st_mode)) return true;
  return std::tuple(a.st_mode, a.st_ino, a.st_size, time_of(a.st_mtim), time_of(a.st_ctim)) ==
         std::tuple(b.st_mode, b.st_ino, b.st_size, time_of(b.st_mtim), time_of(b.st_ctim));
}

bool is_cache(const fs::path& path) {
  return std::find(path.begin(), path.end(), "__pycache__") != path.end();
}

}  // namespace

Listing list_folder(const fs::path& folder, const fs::path& without, bool* all) {
  Listing listing;
  std::error_code failure;
  if (!fs::exists(folder, failure)) return listing;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    struct stat status = {};
    if (lstat(entry->path().c_str(), &status) != 0) continue;
    if (!without.empty() && entry->path() == without) {
      entry.disable_recursion_pending();
      continue;
    }
    if (listing.size() == kMaxEntries) {
      if (all != nullptr) *all = false;
      break;
    }
    listing[entry->path().lexically_relative(folder)] = status;
  }
  if (failure && all != nullptr) *all = false;
  return listing;
}

std::vector<fs::path> changed_files(const Listing& before, const Listing& after) {
  std::vector<fs::path> changed;
  for (const auto& [path, status] : after) {
    const auto known = before.find(path);
    if (!S_ISDIR(status.st_mode) && !is_cache(path) &&
        (known == before.end() || !same(known->second, status)))
      changed.push_back(path);
  }
  for (const auto& [path, status] : before) {
    if (!S_ISDIR(status.st_mode) && !is_cache(path) && !after.contains(path))
      changed.push_back(path);
  }
  return changed;
}

bool copy_file_to(const fs::path& from, const fs::path& to, std::int64_t* room) {
  const int in = open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (in < 0) return false;
  struct stat status = {};
  fstat(in, &status);
  const int out = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool done = out >= 0;
  const bool linked = done && ioctl(out, FICLONE, in) == 0;
  if (done && !linked && room != nullptr) {
    done = status.st_size <= *room;
    if (done) *room -= status.st_size;
  }
  for (std::int64_t left = status.st_size; done && !linked && left > 0;) {
    const ssize_t copied = copy_file_range(in, nullptr, out, nullptr, left, 0);
    if (copied > 0) {
      left -= copied;
    } else {  // not between these file systems
      std::error_code failure;
      done = fs::copy_file(from, to, fs::copy_options::overwrite_existing, failure);
      left = 0;
    }
  }
  if (done) {
    const timespec times[2] = {status.st_atim, status.st_mtim};
    fchmod(out, status.st_mode & 07777);
    futimens(out, times);
  }
  if (out >= 0) close(out);
  if (out >= 0 && !done) unlink(to.c_str());
  close(in);
  return done;
}

FolderState::FolderState(fs::path folder, fs::path without, const fs::path& store)
    : folder_(std::move(folder)),
      without_(std::move(without)),
      before_(list_folder(folder_, without_, &complete_)) {
  if (complete_) keep(store);
}

void FolderState::keep(const fs::path& store) {
  fs::create_directories(store);
  std::vector<Listing::const_iterator> files;
  for (auto entry = before_.cbegin(); entry != before_.cend(); ++entry) {
    std::error_code failure;
    if (S_ISLNK(entry->second.st_mode))
      links_[entry->first] = fs::read_symlink(folder_ / entry->first, failure);
    if (S_ISREG(entry->second.st_mode)) files.push_back(entry);
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return time_of(a->second.st_mtim) > time_of(b->second.st_mtim);
  });
  std::int64_t left = kMaxBytes;
  for (const auto& file : files) {
    if (kept_.size() == kMaxCopies) break;
    const fs::path content = store / std::to_string(kept_.size());
    if (copy_file_to(folder_ / file->first, content, &left)) kept_[file->first] = content;
  }
}

std::vector<FolderState::Undo> FolderState::undo() const {
  std::vector<Undo> undo;
  if (!complete_) return undo;
  const Listing now = list_folder(folder_, without_);
  fs::path gone;  // what is below needs no word
  for (const auto& [path, status] : now) {
    const auto [end, _] = std::mismatch(gone.begin(), gone.end(), path.begin(), path.end());
    if (before_.contains(path) || (!gone.empty() && end == gone.end())) continue;
    undo.push_back({.path = path});
    gone = path;
  }
  for (const auto& [path, status] : before_) {
    const auto found = now.find(path);
    if (found != now.end() && same(found->second, status)) continue;
    Undo one = {.path = path, .existed = true, .status = status};
    if (const auto link = links_.find(path); link != links_.end()) one.link_target = link->second;
    if (const auto kept = kept_.find(path); kept != kept_.end()) one.content = kept->second;
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) continue;
    if (S_ISREG(status.st_mode) && one.content.empty()) {
      if (is_cache(path)) continue;
      throw ContentLost(
          fmt::format("{} ({} MB) was changed meanwhile, and no copy of it had been kept: no other "
                      "run can begin from the same state",
                      (folder_ / path).string(), status.st_size / 1'000'000));
    }
    undo.push_back(std::move(one));
  }
  return undo;
}

}  // namespace ddp_doctor
