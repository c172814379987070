// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/prepared_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/log.h"
#include "lib/record/worker.h"
#include "tool/launch/start_process.h"

namespace ddp_doctor {
namespace {

// For a cold disk to load LibTorch from.
constexpr timeval kLoadingTimeout = {60, 0};
// Bytes of a rank's command line that ps can show.
constexpr std::size_t kCapacity = 4096;

void append(std::string& message, const std::string& word) {
  message += word;
  message += '\0';
}

bool send_with(int socket, const std::string& message, int descriptor) {
  iovec part = {const_cast<char*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(message.size());
}

}  // namespace

PreparedRanks::~PreparedRanks() { give_up(); }

pid_t PreparedRanks::start(const std::vector<std::string>& command, const Environment& environment,
                           int output) {
  if (!given_up_) {
    if (process_ == 0) prepare(command.front(), environment);
    if (const pid_t rank = ask(command, environment, output); rank > 0) return rank;
    log::info("the prepared worker stopped responding; each rank is started by itself");
    give_up();
  }
  return start_process(command, environment, output);
}

void PreparedRanks::prepare(const std::string& executable, const Environment& environment) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  fcntl(ends[1], F_SETFD, 0);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  executable_ = executable;
  environment_ = environment;
  try {
    process_ = start_process(
        {executable, kPreparedOption, std::to_string(ends[1]), std::string(kCapacity, '.')},
        environment, nowhere);
    socket_ = ends[0];
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kLoadingTimeout, sizeof kLoadingTimeout);
  } catch (...) {
    for (const int descriptor : {nowhere, ends[0], ends[1]}) close(descriptor);
    throw;
  }
  close(nowhere);
  close(ends[1]);
}

pid_t PreparedRanks::ask(const std::vector<std::string>& command, const Environment& environment,
                         int output) {
  if (socket_ < 0 || command.front() != executable_) return -1;
  std::string message;
  append(message, std::to_string(getpid()));
  append(message, std::to_string(command.size()));
  for (const auto& word : command) append(message, word);
  for (const auto& [key, value] : environment) {
    const auto own = environment_.find(key);
    if (own == environment_.end() || own->second != value) append(message, key + "=" + value);
  }
  if (!send_with(socket_, message, output)) return -1;
  pid_t rank = -1;
  ssize_t got;
  do {
    got = recv(socket_, &rank, sizeof rank, 0);
  } while (got < 0 && errno == EINTR);
  return got == sizeof rank ? rank : -1;
}

void PreparedRanks::give_up() {
  given_up_ = true;
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (process_ == 0) return;
  kill(process_, SIGKILL);
  int status;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
}

}  // namespace ddp_doctor
