// SPDX-License-Identifier: BSD-3-Clause
#include "tool/watch/connections.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "tool/system/process_table.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// One may be due to a single lost packet. The number stops growing once the route is known to be
// broken, so the duration tells more.
constexpr int kRetransmissions = 2;

std::set<unsigned long> sockets_of(pid_t pid) {
  std::set<unsigned long> inodes;
  std::error_code ignored;
  for (fs::directory_iterator entry("/proc/" + std::to_string(pid) + "/fd", ignored), end;
       entry != end; entry.increment(ignored)) {
    unsigned long inode = 0;
    const std::string target = fs::read_symlink(entry->path(), ignored).string();
    if (std::sscanf(target.c_str(), "socket:[%lu]", &inode) == 1) inodes.insert(inode);
  }
  return inodes;
}

// "0100007F:1F90" or 32 digits of IPv6, in words of the machine's byte order.
std::string address_of(const std::string& text) {
  const auto colon = text.find(':');
  unsigned words[4] = {};
  const int count = static_cast<int>(colon / 8);
  for (int i = 0; i < count && i < 4; ++i)
    words[i] = static_cast<unsigned>(
        std::stoul(text.substr(8 * static_cast<std::size_t>(i), 8), nullptr, 16));
  char name[INET6_ADDRSTRLEN] = "";
  inet_ntop(count == 1 ? AF_INET : AF_INET6, words, name, sizeof name);
  const std::string port = std::to_string(std::stoul(text.substr(colon + 1), nullptr, 16));
  return count == 1 ? fmt::format("{}:{}", name, port) : fmt::format("[{}]:{}", name, port);
}

std::optional<std::string> silent_in(const std::string& table, const std::set<unsigned long>& own) {
  std::istringstream lines(content_if_readable(table));
  std::string line;
  std::getline(lines, line);  // the names of the columns
  while (std::getline(lines, line)) {
    std::istringstream in(line);
    std::string number, local, remote, state, queues, timer, retransmitted, user, timeout;
    unsigned long inode = 0;
    in >> number >> local >> remote >> state >> queues >> timer >> retransmitted >> user >>
        timeout >> inode;
    if (!in || !own.contains(inode)) continue;
    if (std::stol(retransmitted, nullptr, 16) >= kRetransmissions) return address_of(remote);
  }
  return {};
}

}  // namespace

std::optional<std::string> silent_peer(pid_t pid) {
  const auto own = sockets_of(pid);
  const std::string process = "/proc/" + std::to_string(pid);
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    if (auto peer = silent_in(process + table, own)) return peer;
  }
  return {};
}

}  // namespace ddp_doctor
