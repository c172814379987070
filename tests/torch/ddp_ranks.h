// SPDX-License-Identifier: BSD-3-Clause
// Runs the ranks of a job as threads of the test, each with its own process group over one file.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "probes/libtorch/ddp/distributed_data_parallel.h"
#include "probes/libtorch/ddp/process_group.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor::test {

// Calls function(rank) on a thread per rank, and rethrows what the lowest rank threw.
inline void on_threads(int world_size, const std::function<void(int rank)>& function) {
  std::vector<std::exception_ptr> errors(world_size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        function(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

struct Job {
  std::unique_ptr<TemporaryFolder> folder = std::make_unique<TemporaryFolder>();
  std::vector<ProcessGroupPtr> groups;  // by rank
};

// Once in some thousand times, while many programs open and close ports, Gloo finds a first
// connection closed: these ranks then meet again. Collectives give up after 20 seconds.
inline Job meet(int world_size) {
  for (int attempt = 1;; ++attempt) {
    Job job;
    job.groups.resize(world_size);
    try {
      on_threads(world_size, [&](int rank) {
        job.groups[rank] = make_gloo_process_group({.rank = rank,
                                                    .world_size = world_size,
                                                    .file = job.folder->path() / "rendezvous",
                                                    .timeout = std::chrono::seconds(20)});
      });
      return job;
    } catch (const std::exception& error) {
      const bool closed = std::string(error.what()).find("Connection closed") != std::string::npos;
      if (!closed || attempt == 3) throw;
    }
  }
}

// Rethrows what the lowest rank threw.
inline void on_ranks(int world_size,
                     const std::function<void(int rank, const ProcessGroupPtr& group)>& function) {
  Job job = meet(world_size);
  on_threads(world_size, [&](int rank) {
    const ProcessGroupPtr group = std::move(job.groups[rank]);  // goes when its rank is through
    function(rank, group);
  });
}

// The text of the c10::Error that `function` throws, without C++'s backtrace; "" if it does not
// throw.
inline std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

inline at::Tensor tensor_of(const std::vector<float>& values) { return torch::tensor(values); }
// Other data on every rank.
inline at::Tensor input_of(int rank) { return tensor_of({2, 4}) * (rank + 1); }

}  // namespace ddp_doctor::test
