// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/ddp/process_group.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr const char* kLoopback = "127.0.0.1";

bool says_address_in_use(const std::string& text) {
  return text.find("EADDRINUSE") != std::string::npos ||
         text.find("already in use") != std::string::npos;
}

StorePtr open_tcp_store(c10d::TCPStoreOptions options) {
  try {
    return c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
  } catch (const std::exception& error) {
    const bool lacks_libuv = std::strstr(error.what(), "without libuv") != nullptr;
    if (!lacks_libuv || !do_without_libuv(options)) throw;
  }
  return c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
}

StorePtr make_tcp_store(const Rendezvous& rendezvous) {
  if (rendezvous.port < 0 || rendezvous.port > 65535) {
    throw Error(
        fmt::format("port {} is not a port number: choose one from 1 to 65535, or give a "
                    "rendezvous file instead",
                    rendezvous.port));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.isServer = rendezvous.rank == 0;
  options.numWorkers = static_cast<std::size_t>(rendezvous.world_size);
  options.timeout = rendezvous.timeout;
  try {
    return open_tcp_store(options);
  } catch (const std::exception& error) {
    if (!options.isServer || !says_address_in_use(error.what())) throw;
    throw Error(fmt::format(
        "port {} on {} is in use: choose another port, or give a rendezvous file instead",
        rendezvous.port, kLoopback));
  }
}

StorePtr make_store(const Rendezvous& rendezvous) {
  if (rendezvous.port != 0) return make_tcp_store(rendezvous);
  if (!rendezvous.file.empty()) {
    return c10::make_intrusive<c10d::FileStore>(rendezvous.file, rendezvous.world_size);
  }
  if (rendezvous.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  throw Error(fmt::format("{} ranks have no rendezvous: give a rendezvous file, or a port on {}",
                          rendezvous.world_size, kLoopback));
}

}  // namespace

Rendezvous rendezvous_from_environment() {
  const auto number = [](const char* name) {
    const char* text = std::getenv(name);
    int value = 0;
    const char* end = text == nullptr ? nullptr : text + std::strlen(text);
    if (text == nullptr || *text == '\0' || std::from_chars(text, end, value).ptr != end) {
      throw Error(
          fmt::format("{} is {}: start the program with ddp-doctor run --nproc-per-node 2 -- "
                      "PROGRAM, or torchrun --no_python --nproc_per_node 2 PROGRAM",
                      name, text == nullptr ? "not set" : fmt::format("'{}'", text)));
    }
    return value;
  };
  return {.rank = number("RANK"),
          .world_size = number("WORLD_SIZE"),
          .file = "",
          .port = number("MASTER_PORT")};
}

c10::intrusive_ptr<c10d::Store> make_prefixed_store(const Rendezvous& rendezvous) {
  if (rendezvous.rank < 0 || rendezvous.rank >= rendezvous.world_size) {
    throw Error(fmt::format("rank {} of {} ranks: ranks are numbered from 0 to {}", rendezvous.rank,
                            rendezvous.world_size, rendezvous.world_size - 1));
  }
  initialize_c10d();
  const StorePtr base = make_store(rendezvous);
  base->setTimeout(rendezvous.timeout);
  // The prefix leaves room for others in the same store, as torch.distributed does.
  return c10::make_intrusive<c10d::PrefixStore>("ddp_doctor", base);
}

ProcessGroupPtr make_gloo_process_group(const Rendezvous& rendezvous) {
  const StorePtr store = make_prefixed_store(rendezvous);
  const auto options = c10d::ProcessGroupGloo::Options::create(rendezvous.timeout);
  // Not by host name: a machine's own name often resolves to an address that its ranks cannot
  // reach.
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kLoopback));
  options->threads = 2;
  const auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rendezvous.rank,
                                                                   rendezvous.world_size, options);
  return as_process_group(store, rendezvous.rank, rendezvous.world_size, backend);
}

void all_reduce_sum(const ProcessGroupPtr& process_group, at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  process_group->allreduce(tensors)->wait();
}

}  // namespace ddp_doctor
