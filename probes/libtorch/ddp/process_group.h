// SPDX-License-Identifier: BSD-3-Clause
// Process groups on the loopback interface, the same way on every supported LibTorch.
#pragma once

#include <ddp_doctor/torch_compat.h>

#include <chrono>
#include <string>

namespace ddp_doctor {

// The rendezvous of the ranks of one job: a file that all of them can access (no port conflicts
// between jobs; remove the file of an earlier job first), or, if `port` is not 0, a TCP store that
// rank 0 serves and the others reach on 127.0.0.1 (c10d's store itself listens on all addresses: on
// a shared machine use a file). A single rank needs neither. `timeout` holds for meeting and for
// collectives.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  std::string file;
  int port = 0;
  std::chrono::milliseconds timeout{60'000};
};

// The rendezvous from the environment of torchrun or `ddp-doctor run`: RANK, WORLD_SIZE and
// MASTER_PORT. Throws Error naming a missing variable.
Rendezvous rendezvous_from_environment();

// A Gloo process group of two threads per rank, as torch.distributed.init_process_group("gloo")
// makes it, listening on 127.0.0.1 only. Blocks until all ranks have joined. Throws Error naming
// the port if it is in use; other errors are c10d's (c10::Error, std::runtime_error).
ProcessGroupPtr make_gloo_process_group(const Rendezvous& rendezvous);

// The store alone, for a process group of another backend.
c10::intrusive_ptr<c10d::Store> make_prefixed_store(const Rendezvous& rendezvous);

// Sums `tensor` in place over all ranks; blocks. If a peer is lost, throws the backend's exception
// (Gloo: std::exception).
void all_reduce_sum(const ProcessGroupPtr& process_group, at::Tensor tensor);

}  // namespace ddp_doctor
