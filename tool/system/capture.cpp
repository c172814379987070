// SPDX-License-Identifier: BSD-3-Clause
#include "tool/system/capture.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/log.h"

namespace ddp_doctor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxCaptured = 64 * 1024;

struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int which) {
    if (ends[which] >= 0) close(ends[which]);
    ends[which] = -1;
  }
  int ends[2];
};

// False when nothing more can come.
bool take(Pipe& pipe, std::string& text) {
  char buffer[4096];
  const ssize_t got = read(pipe.ends[0], buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  if (text.size() < kMaxCaptured) text.append(buffer, static_cast<std::size_t>(got));
  return true;
}

}  // namespace

Answer ask(const std::vector<std::string>& command, milliseconds deadline) {
  Answer answer;
  Pipe out, err;
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.ends[1], 1);
  posix_spawn_file_actions_adddup2(&files, err.ends[1], 2);
  pid_t pid = 0;
  const int failure = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) {
    log::debug("{} cannot be started: {}", command.front(), std::strerror(failure));
    return answer;
  }
  out.close_end(1);
  err.close_end(1);

  const auto end = Clock::now() + deadline;
  bool more_out = true, more_err = true;
  while (more_out || more_err) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (left.count() <= 0) {
      answer.late = true;
      kill(pid, SIGKILL);
      break;
    }
    pollfd readers[2] = {{more_out ? out.ends[0] : -1, POLLIN, 0},
                         {more_err ? err.ends[0] : -1, POLLIN, 0}};
    poll(readers, 2, static_cast<int>(left.count()));
    if (readers[0].revents != 0) more_out = take(out, answer.out);
    if (readers[1].revents != 0) more_err = take(err, answer.err);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) answer.status = WEXITSTATUS(status);
  if (answer.status != 0) {
    log::debug("{} {}: {}", fmt::join(command, " "),
               answer.late ? "did not end in time" : fmt::format("status {}", answer.status),
               answer.err);
  }
  return answer;
}

}  // namespace ddp_doctor
