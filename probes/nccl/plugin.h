// SPDX-License-Identifier: BSD-3-Clause
// What libddp-doctor-nccl.so gives the rank worker. A library of its own, because it links
// libtorch_cuda, which takes seconds to load, and exists in few LibTorches.
#pragma once

#include <ddp_doctor/torch_compat.h>

#include <chrono>
#include <string>

namespace ddp_doctor {

struct NcclPlugin {
  // "2.30.7"
  std::string (*version)();
  int (*gpus)();
  // One rank, which uses GPU number `device`; throws what c10d throws.
  ProcessGroupPtr (*make)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                          int device, std::chrono::milliseconds timeout);
  // Ends communication: together with all other ranks, or at once and without them.
  void (*shut_down)(const ProcessGroupPtr& group);
  void (*abort)(const ProcessGroupPtr& group);
};

inline constexpr char kNcclPluginSymbol[] = "ddp_doctor_nccl_plugin";

// Loads it from beside this executable; throws Error saying what to do where it is missing, or
// where libtorch_cuda does not load.
const NcclPlugin& nccl_plugin();

}  // namespace ddp_doctor
