// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  explicit Folder(const fs::path& path)
      : descriptor_(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}
  Folder(Folder&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~Folder() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Folder& operator=(Folder&&) = delete;

  // A path that needs no quoting in mount options, and leads there whatever is mounted above.
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

struct Below {
  std::string target;
  Folder folder, upper, work;
};

bool write_file(const char* file, const std::string& text) {
  const int out = open(file, O_WRONLY | O_CLOEXEC);
  const bool done =
      out >= 0 && write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (out >= 0) close(out);
  return done;
}

// Everybody keeps the own user and group.
bool own_user_namespace(uid_t user, gid_t group) {
  return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", fmt::format("{0} {0} 1\n", user)) &&
         write_file("/proc/self/gid_map", fmt::format("{0} {0} 1\n", group));
}

bool mount_overlay(const Below& below) {
  const std::string options = fmt::format("lowerdir={},upperdir={},workdir={}", below.folder.path(),
                                          below.upper.path(), below.work.path());
  // Without the right to set trusted attributes, overlayfs needs the user's own.
  for (const char* attributes : {",userxattr", ""}) {
    if (mount("overlay", below.target.c_str(), "overlay", 0, (options + attributes).c_str()) == 0)
      return true;
  }
  return false;
}

// In a child: what failed, or an empty text.
std::string build(const std::vector<Overlay>& overlays, const fs::path& visible, bool& own_user) {
  const uid_t user = getuid();
  const gid_t group = getgid();
  const auto failed = [](const char* what) {
    return fmt::format("{}: {}", what, std::strerror(errno));
  };
  own_user = unshare(CLONE_NEWNS) != 0;
  if (own_user && !own_user_namespace(user, group)) return failed("no user namespace");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed("no private mounts");
  std::vector<Below> all;
  for (const auto& overlay : overlays)
    all.push_back(
        {overlay.folder, Folder(overlay.folder), Folder(overlay.upper), Folder(overlay.work)});
  const Folder records(visible);
  for (const auto& below : all) {
    if (!mount_overlay(below)) return failed("no overlay");
  }
  if (mount(records.path().c_str(), visible.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return failed("no bind mount");
  return {};
}

}  // namespace

MountNamespace::MountNamespace(const std::vector<Overlay>& overlays, const fs::path& visible) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    bool own_user = false;
    const std::string failure = build(overlays, visible, own_user);
    const std::string answer = !failure.empty() ? failure : own_user ? "+user" : "+";
    char nothing;
    if (send(ends[1], answer.data(), answer.size(), MSG_NOSIGNAL) > 0) [[maybe_unused]]
      const ssize_t end = read(ends[1], &nothing, 1);  // until it was looked at
    _exit(0);
  }
  close(ends[1]);
  char answer[500];
  ssize_t got = -1;
  if (child > 0) {
    do {
      got = read(ends[0], answer, sizeof answer);
    } while (got < 0 && errno == EINTR);
  }
  const std::string message(answer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (message.starts_with('+')) {
    const auto look = [&](const char* which) {
      return open(fmt::format("/proc/{}/ns/{}", child, which).c_str(), O_RDONLY | O_CLOEXEC);
    };
    mounts_ = look("mnt");
    if (message == "+user") user_ = look("user");
  }
  close(ends[0]);
  int status;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (mounts_ < 0 || (message == "+user" && user_ < 0))
    throw Error(message.empty() || message.starts_with('+') ? "no namespace" : message);
}

MountNamespace::~MountNamespace() {
  for (const int descriptor : {user_, mounts_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

bool MountNamespace::join() const {
  return (user_ < 0 || setns(user_, CLONE_NEWUSER) == 0) && setns(mounts_, CLONE_NEWNS) == 0;
}

}  // namespace ddp_doctor
