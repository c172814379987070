// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "lib/error.h"
#include "lib/log.h"
#include "tool/system/interrupt.h"
#include "tool/system/process_table.h"

namespace ddp_doctor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kAsked = milliseconds(300);
// A process in uninterruptible sleep (an unreachable network disk) cannot be killed; it is not
// waited for.
constexpr auto kTimeout = std::chrono::seconds(5);
constexpr auto kBetweenLooks = milliseconds(5);

bool alive(pid_t pid) {
  const auto state = look_at_process(pid);
  return state && !state->ended;
}

template <class Find>
void end_whom(Find find) {
  const auto begun = Clock::now();
  std::set<pid_t> asked;
  // A process may fork during the search, so one search that finds none is not enough.
  for (int empty_looks = 0; empty_looks < 2 && Clock::now() - begun < kTimeout;) {
    const std::vector<pid_t> found = find();
    empty_looks = found.empty() ? empty_looks + 1 : 0;
    const bool asking = Clock::now() - begun < kAsked && !InterruptGuard::insisted();
    for (const pid_t pid : found) {
      if (!asking) {
        kill(pid, SIGKILL);
      } else if (asked.insert(pid).second) {
        kill(pid, SIGTERM);
        kill(pid, SIGCONT);
      }
    }
    if (!found.empty()) std::this_thread::sleep_for(kBetweenLooks);
  }
  for (const pid_t pid : find()) {
    log::warn("process {} did not end within {} s; end it by hand (kill -9 {})", pid,
              kTimeout.count(), pid);
  }
}

[[noreturn]] void watch(int lifeline, const std::string& setting) {
  setsid();  // neither Ctrl-C nor a closed terminal reaches the watchman
  // A name of its own, so that `pkill ddp-doctor` does not kill it.
  prctl(PR_SET_NAME, "ddp-watchman");
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) signal(signal_number, SIG_IGN);
  // A reader of our output must not wait for the watchman.
  for (const int standard : {0, 1, 2}) close(standard);
  char nothing;
  ssize_t got;
  do {
    got = read(lifeline, &nothing, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 0) {
    end_whom([&] {
      auto found = processes_with(setting);
      std::erase_if(found, [](pid_t pid) { return !alive(pid); });
      return found;
    });
  }
  _exit(0);
}

}  // namespace

LaunchGuard::LaunchGuard() {
  const auto now = Clock::now().time_since_epoch().count();
  value_ = fmt::format("{}.{}", getpid(), now);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
    watchman_ = fork();
    if (watchman_ == 0) {
      close(ends[1]);
      watch(ends[0], setting());
    }
    close(ends[0]);
    lifeline_ = ends[1];
  }
  if (lifeline_ < 0 || watchman_ < 0) {
    throw Error(fmt::format(
        "cannot start a process: {}; stop some processes, or raise the limit (ulimit -u)",
        std::strerror(errno)));
  }
}

LaunchGuard::~LaunchGuard() {
  end_all();
  // A byte tells the watchman that nothing is left to do.
  send(lifeline_, "x", 1, MSG_NOSIGNAL);
  close(lifeline_);
  int status;
  while (waitpid(watchman_, &status, 0) < 0 && errno == EINTR) {
  }
  while (waitpid(-1, &status, WNOHANG) > 0) {
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

void LaunchGuard::end_all() {
  end_whom([&] {
    std::vector<pid_t> found;
    for (const pid_t pid : descendants_of(getpid())) {
      if (pid != watchman_ && pid != spared_ && alive(pid)) found.push_back(pid);
    }
    return found;
  });
}

void LaunchGuard::end_one(pid_t pid) {
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
}

}  // namespace ddp_doctor
