// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/start_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/error.h"
#include "tool/launch/isolation.h"

namespace ddp_doctor {
namespace {

// execve() that runs a script without a first line as the shell would; only async-signal-safe
// calls.
void execute(char** argv, char** argv_of_shell, char** envp) {
  execve(argv[0], argv, envp);
  if (errno == ENOEXEC) execve(argv_of_shell[0], argv_of_shell, envp);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (auto& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

pid_t start_process(const std::vector<std::string>& command, const Environment& environment,
                    int output, const View* view) {
  std::vector<std::string> words = command;
  std::vector<std::string> words_of_shell = words;
  words_of_shell.insert(words_of_shell.begin(), "/bin/sh");
  std::vector<std::string> settings;
  for (const auto& [key, value] : environment) settings.push_back(key + "=" + value);
  const auto argv = pointers(words);
  const auto argv_of_shell = pointers(words_of_shell);
  const auto envp = pointers(settings);
  const pid_t parent = getpid();
  int trouble[2];  // carries errno if the program cannot be executed, and closes if it can

  pid_t pid = -1;
  if (pipe2(trouble, O_CLOEXEC) != 0 || (pid = fork()) < 0) {
    throw Error(fmt::format(
        "{} cannot be started: {}; stop some processes, or raise the limits (ulimit -u, -n)",
        words.front(), std::strerror(errno)));
  }
  if (pid == 0) {
    // Only async-signal-safe calls from here to exec.
    setpgid(0, 0);
    if (view != nullptr && !view->enter()) {
      const int why = errno;
      [[maybe_unused]] const ssize_t written = write(trouble[1], &why, sizeof why);
      _exit(127);
    }
    // Other rights, which a view has, would clear it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int in = open("/dev/null", O_RDONLY);
    if (in >= 0) dup2(in, 0);
    dup2(output, 1);
    dup2(output, 2);
    execute(const_cast<char**>(argv.data()), const_cast<char**>(argv_of_shell.data()),
            const_cast<char**>(envp.data()));
    const int why = errno;
    [[maybe_unused]] const ssize_t written = write(trouble[1], &why, sizeof why);
    _exit(127);
  }
  setpgid(pid, pid);
  close(trouble[1]);
  int why = 0;
  ssize_t got;
  do {
    got = read(trouble[0], &why, sizeof why);
  } while (got < 0 && errno == EINTR);
  close(trouble[0]);
  if (got == sizeof why) {
    throw Error(
        fmt::format("{} cannot be started: {}; check that it is an executable for this machine",
                    words.front(), std::strerror(why)));
  }
  return pid;
}

}  // namespace ddp_doctor
