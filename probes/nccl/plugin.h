// SPDX-License-Identifier: BSD-3-Clause
// The interface of libddp-doctor-nccl.so for the rank worker. It is a separate library because it
// links libtorch_cuda, which takes seconds to load and is missing in many builds of LibTorch.
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
  // Ends communication: together with all other ranks, or immediately without them.
  void (*shut_down)(const ProcessGroupPtr& group);
  void (*abort)(const ProcessGroupPtr& group);
};

inline constexpr char kNcclPluginSymbol[] = "ddp_doctor_nccl_plugin";

// Loads it from the folder of this executable. Throws Error with the next action if it is missing,
// or if libtorch_cuda does not load.
const NcclPlugin& nccl_plugin();

}  // namespace ddp_doctor
