// SPDX-License-Identifier: BSD-3-Clause
// A warp of 32 threads of the CPU, that run what a GPU would (lib/digest/cuda/warp_digest.h).
#pragma once

#include <array>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "lib/digest/cuda/plan.h"

namespace ddp_doctor::cuda {

class CpuWarp {
 public:
  struct Shared {
    std::array<std::uint64_t, kLanes> values;
    std::barrier<> barrier{kLanes};
  };

  CpuWarp(Shared& shared, int lane) : shared_(shared), lane_(lane) {}

  int lane() const { return lane_; }
  std::uint64_t exchanged(std::uint64_t value, int apart) const {
    shared_.values[static_cast<std::size_t>(lane_)] = value;
    shared_.barrier.arrive_and_wait();
    const std::uint64_t other = shared_.values[static_cast<std::size_t>(lane_ ^ apart)];
    shared_.barrier.arrive_and_wait();
    return other;
  }

 private:
  Shared& shared_;
  int lane_;
};

// All units of a launch, one after another.
inline void run(const Launch& launch) {
  CpuWarp::Shared shared;
  std::vector<std::jthread> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes.emplace_back([&shared, &launch, lane] {
      const CpuWarp warp(shared, lane);
      for (std::uint32_t unit = 0; unit < launch.units; ++unit) digest_unit(warp, launch, unit);
    });
  }
}

// What a GPU would have left in memory.
class FoundByCpu {
 public:
  FoundByCpu(std::span<const DeviceTensor> tensors, bool copy)
      : plan_(tensors, copy), memory_((plan_.bytes() + 15) / 16) {
    const auto launch = std::make_unique<Launch>();
    for (std::size_t i = 0; i < plan_.launches(); ++i) {
      plan_.write_launch(i, memory(), *launch);
      run(*launch);
    }
  }

  DeviceDigest result(std::size_t i) const { return plan_.result(i, memory()); }

 private:
  struct alignas(16) Sixteen {
    std::byte bytes[16];
  };
  std::byte* memory() { return reinterpret_cast<std::byte*>(memory_.data()); }
  const std::byte* memory() const { return reinterpret_cast<const std::byte*>(memory_.data()); }

  Plan plan_;
  std::vector<Sixteen> memory_;
};

}  // namespace ddp_doctor::cuda
