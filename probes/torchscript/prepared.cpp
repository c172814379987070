// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/prepared.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ddp_doctor {
namespace {

struct Request {
  pid_t parent = 0;  // the rank's, in the end
  std::vector<std::string> command;
  std::vector<std::string> settings;  // "NAME=value", beyond what this process has
  int output = -1;
};

// Words, each ended by a zero byte: parent, number of words in the command, the command, settings.
Request parse(const std::string& message) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t end = message.find('\0', at);
    words.push_back(message.substr(at, end - at));
    at = end == std::string::npos ? message.size() : end + 1;
  }
  Request request;
  if (words.size() < 2) return request;
  request.parent = static_cast<pid_t>(std::strtol(words[0].c_str(), nullptr, 10));
  const auto count = std::strtoul(words[1].c_str(), nullptr, 10);
  for (std::size_t i = 2; i < words.size(); ++i)
    (i < 2 + count ? request.command : request.settings).push_back(words[i]);
  return request;
}

// Without a command: no more requests.
Request next_request(int socket) {
  std::string buffer(1 << 20, '\0');
  int output = -1;
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof output)] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return {};
  buffer.resize(static_cast<std::size_t>(got));
  Request request = parse(buffer);
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr)
    std::memcpy(&request.output, CMSG_DATA(rights), sizeof output);
  return request;
}

// In the rank: ends with its parent, which has yet to adopt it.
void belong_to(pid_t parent) {
  constexpr int kTries = 5000;
  for (int i = 0; getppid() != parent; ++i) {
    if (i == kTries) _exit(127);
    usleep(200);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
}

// Forks twice: an orphaned process is adopted by the subreaper. Returns 0 in the rank, its process
// id or -1 in the process that waits.
pid_t fork_orphan(int socket) {
  int told[2];
  if (pipe(told) != 0) return -1;
  pid_t rank = -1;
  const pid_t between = fork();
  if (between == 0) {
    rank = fork();
    if (rank == 0) {
      for (const int descriptor : {told[0], told[1], socket}) close(descriptor);
      return 0;
    }
    [[maybe_unused]] const ssize_t written = write(told[1], &rank, sizeof rank);
    _exit(0);
  }
  close(told[1]);
  if (read(told[0], &rank, sizeof rank) != sizeof rank) rank = -1;
  close(told[0]);
  if (between > 0) waitpid(between, nullptr, 0);
  return rank;
}

void show(const std::vector<std::string>& command, std::span<char> title) {
  std::string text;
  for (const auto& word : command) text += word + '\0';
  std::fill(title.begin(), title.end(), '\0');
  std::copy_n(text.begin(), std::min(text.size(), title.size() - 1), title.begin());
}

}  // namespace

std::vector<std::string> forked_rank(int socket, std::span<char> title) {
  show({"script-probe", "waits", "to", "fork", "ranks"}, title);
  for (;;) {
    Request request = next_request(socket);
    if (request.command.empty()) _exit(0);
    const pid_t rank = fork_orphan(socket);
    if (rank == 0) {
      setpgid(0, 0);
      belong_to(request.parent);
      dup2(request.output, 1);
      dup2(request.output, 2);
      close(request.output);
      for (auto& setting : request.settings) {
        const auto equals = setting.find('=');
        setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
      }
      show(request.command, title);
      return std::move(request.command);
    }
    close(request.output);
    send(socket, &rank, sizeof rank, MSG_NOSIGNAL);
  }
}

}  // namespace ddp_doctor
