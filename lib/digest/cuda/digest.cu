// SPDX-License-Identifier: BSD-3-Clause
// The kernels, as a driver finds them by name. Compiled to PTX by clang, which needs no CUDA
// toolkit and writes for every driver since CUDA 10; nvcc compiles the same file
// (lib/CMakeLists.txt).
#if defined(__clang__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#endif

#include "lib/digest/cuda/warp_digest.h"

namespace ddp_doctor::cuda {
namespace {

#if defined(__clang__)
__device__ inline unsigned thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
__device__ inline unsigned block_index() { return __nvvm_read_ptx_sreg_ctaid_x(); }
__device__ inline unsigned block_size() { return __nvvm_read_ptx_sreg_ntid_x(); }
__device__ inline uint32_t shuffled(uint32_t value, int apart) {
  return static_cast<uint32_t>(
      __nvvm_shfl_sync_bfly_i32(0xffffffffU, static_cast<int>(value), apart, 31));
}
#else
__device__ inline unsigned thread_index() { return threadIdx.x; }
__device__ inline unsigned block_index() { return blockIdx.x; }
__device__ inline unsigned block_size() { return blockDim.x; }
__device__ inline uint32_t shuffled(uint32_t value, int apart) {
  return __shfl_xor_sync(0xffffffffU, value, apart);
}
#endif

struct CudaWarp {
  __device__ int lane() const { return static_cast<int>(thread_index() % kLanes); }
  __device__ uint64_t exchanged(uint64_t value, int apart) const {
    const uint64_t high = shuffled(static_cast<uint32_t>(value >> 32), apart);
    return high << 32 | shuffled(static_cast<uint32_t>(value), apart);
  }
};

}  // namespace
}  // namespace ddp_doctor::cuda

extern "C" {

// The work of a launch, written before the kernel is launched; each launch in flight has its own.
__device__ ddp_doctor::cuda::Launch ddp_doctor_launches[ddp_doctor::cuda::kLaunches];

// As many registers as leave room for two of these on a multiprocessor: a warp holds 8 KiB.
__global__ void __attribute__((launch_bounds(256, 2))) ddp_doctor_digest_kernel(unsigned place) {
  using namespace ddp_doctor::cuda;
  const Launch& launch = ddp_doctor_launches[place];
  const unsigned unit = (block_index() * block_size() + thread_index()) / kLanes;
  if (unit < launch.units) digest_unit(CudaWarp(), launch, unit);
}
}
