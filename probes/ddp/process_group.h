// SPDX-License-Identifier: BSD-3-Clause
// Process groups on the loopback interface, the same way on every supported LibTorch.
#pragma once

#include <ddp_doctor/torch_compat.h>

#include <chrono>
#include <string>

namespace ddp_doctor {

// Where the ranks of one job find each other: a file that all of them can reach (any number of jobs
// on a machine, no port to collide; one that an earlier job left behind must be removed before),
// or, where `port` is not 0, a TCP store that rank 0 serves and the others reach on 127.0.0.1
// (c10d's store itself listens on all addresses: on a shared machine use a file). A single rank
// needs neither. `timeout` holds for meeting and for collectives.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  std::string file;
  int port = 0;
  std::chrono::milliseconds timeout{60'000};
};

// Where torchrun's environment, which `ddp-doctor run` sets, too, says: RANK, WORLD_SIZE and
// MASTER_PORT. Throws Error naming what is missing.
Rendezvous rendezvous_from_environment();

// A Gloo process group of two threads per rank, as torch.distributed.init_process_group("gloo")
// makes it, listening on 127.0.0.1 only. Blocks until all ranks are there. Throws Error naming the
// port when it is taken, and what c10d throws (c10::Error, std::runtime_error) otherwise.
ProcessGroupPtr make_gloo_process_group(const Rendezvous& rendezvous);

// The store alone, for a process group of another backend.
c10::intrusive_ptr<c10d::Store> make_prefixed_store(const Rendezvous& rendezvous);

// Sums `tensor` in place over all ranks; blocks. Throws what the backend throws (Gloo:
// std::exception) when a peer is gone.
void all_reduce_sum(const ProcessGroupPtr& process_group, at::Tensor tensor);

}  // namespace ddp_doctor
