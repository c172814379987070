// SPDX-License-Identifier: BSD-3-Clause
// The work of a GPU for some tensors, the layout of its results in host memory, and how they become
// digests. Independent of the driver, so that tests can replace the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/digest/cuda/warp_digest.h"
#include "lib/digest/digest.h"
#include "lib/digest/elements.h"

namespace ddp_doctor::cuda {

// Contiguous, in the memory of a GPU.
struct DeviceTensor {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t numel = 0;
};

struct DeviceDigest {
  TensorDigest digest;
  SampledValues samples;            // as sample() takes them
  std::span<const std::byte> copy;  // of all bytes, if that was wanted
};

class Plan {
 public:
  Plan(std::span<const DeviceTensor> tensors, bool copy);

  // For what is found; the memory must be aligned to 16 bytes.
  std::size_t bytes() const { return bytes_; }
  // Each of kTensorsInLaunch tensors at most.
  std::size_t launches() const {
    return (places_.size() + kTensorsInLaunch - 1) / kTensorsInLaunch;
  }
  // Of all launches, one behind another.
  std::size_t bytes_of_launches() const {
    return launches() * offsetof(Launch, tensors) + places_.size() * sizeof(Tensor);
  }
  // `found`: where the GPU reaches that memory.
  void write_launch(std::size_t number, std::byte* found, Launch& launch) const;

  // Of the tensor at `i`, once the GPU has done all of it.
  DeviceDigest result(std::size_t i, const std::byte* found) const;

 private:
  struct Place {
    DeviceTensor tensor;
    std::size_t blocks;
    std::size_t digests;  // from the beginning, as are the others
    std::size_t rest;
    std::size_t copy;
  };
  std::size_t bytes_of(const Place& place) const;

  std::vector<Place> places_;
  std::size_t bytes_ = 0;
  bool copy_;
};

// The bytes of a launch that say something.
inline std::size_t bytes_of(const Launch& launch) {
  return offsetof(Launch, tensors) + launch.count * sizeof(Tensor);
}

}  // namespace ddp_doctor::cuda
