// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr int kLowest = 10'240;
constexpr int kHighest = 65'535;

// The port that a listener gets when it asks for `port`; 0 if it is taken. Bound to every address,
// as PyTorch's store binds it.
int listen_on(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return 0;
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  const bool got = bind(listener, any, size) == 0 && listen(listener, 1) == 0 &&
                   getsockname(listener, any, &size) == 0;
  close(listener);
  return got ? ntohs(address.sin_port) : 0;
}

}  // namespace

int free_port() {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  const int begin = first - kLowest > 1000 ? kLowest : last + 1;
  const int count = (begin == kLowest ? first : kHighest + 1) - begin;
  if (last > 0 && count > 0) {
    // Examinations that start at the same time begin at different places.
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    const auto start =
        static_cast<std::uint64_t>(now) / 1000 + static_cast<std::uint64_t>(getpid()) * 7919;
    for (int i = 0; i < count; ++i) {
      const int port = begin + static_cast<int>((start + static_cast<std::uint64_t>(i)) %
                                                static_cast<std::uint64_t>(count));
      if (listen_on(port) != 0) return port;
    }
  }
  if (const int port = listen_on(0); port != 0) return port;
  throw Error(
      "no TCP port is free for the ranks' store; close some connections, or choose a port with "
      "--master-port");
}

}  // namespace ddp_doctor
