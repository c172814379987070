// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous digests of GPU tensors: they are computed on the program's own stream, and nothing
// waits for them. All CUDA code is in libddp-doctor-cuda.so (lib/digest/cuda/cuda_api.h), which is
// loaded when there is such a tensor.
#pragma once

#include <memory>
#include <span>

#include "lib/digest/cuda/plan.h"

struct ddpc_batch;

namespace ddp_doctor {

using cuda::DeviceDigest;
using cuda::DeviceTensor;

// Throws Error if there is no such library, no GPU, or the driver fails.
class DeviceBatch {
 public:
  // `stream`: a CUstream of GPU number `device`. `copy`: also return all bytes.
  DeviceBatch(int device, void* stream, std::span<const DeviceTensor> tensors, bool copy);

  // Returns when the GPU has come so far; the thread sleeps until then.
  void wait() const;
  // Of a batch that was waited for; the copy lives as long as the batch.
  DeviceDigest result(std::size_t i) const;

 private:
  struct End {
    void operator()(ddpc_batch* batch) const;
  };
  std::unique_ptr<ddpc_batch, End> batch_;
};

}  // namespace ddp_doctor
