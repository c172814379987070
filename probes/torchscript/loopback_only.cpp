// SPDX-License-Identifier: BSD-3-Clause
// Makes every listening socket of a rank use the loopback interface.
//
// Gloo accepts an address, but c10d's TCPStore listens on all addresses and has no setting for it.
// This definition of bind() precedes the C library's for the whole process, and replaces "any
// address" by loopback.

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace {

// ::ffff:127.0.0.1, so that a dual-stack socket still accepts those who connect to 127.0.0.1.
constexpr in6_addr kMappedLoopback = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};

using Bind = int (*)(int, const sockaddr*, socklen_t);

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(int socket, const sockaddr* address,
                                                           socklen_t size) noexcept {
  static const Bind next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in loopback;
    std::memcpy(&loopback, address, sizeof loopback);
    if (loopback.sin_addr.s_addr == htonl(INADDR_ANY))
      loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return next(socket, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback);
  }
  if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 loopback;
    std::memcpy(&loopback, address, sizeof loopback);
    if (std::memcmp(&loopback.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0)
      loopback.sin6_addr = kMappedLoopback;
    return next(socket, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback);
  }
  return next(socket, address, size);
}
