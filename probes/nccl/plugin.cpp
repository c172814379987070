// SPDX-License-Identifier: BSD-3-Clause
#include "probes/nccl/plugin.h"

#include <fmt/format.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/cuda.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ddp_doctor {
namespace {

std::string version() {
  // As torch.cuda.nccl.version() takes it apart.
  const std::uint64_t number = torch::cuda::nccl::version();
  return fmt::format("{}.{}.{}", number >> 32, number >> 16 & 0xffff, number & 0xffff);
}

int gpus() { return static_cast<int>(torch::cuda::device_count()); }

// In 1.x a backend is the process group; from 2.0 on, a process group holds backends.
template <class Backend, class Group>
Backend& backend_of(const c10::intrusive_ptr<Group>& group) {
  if constexpr (std::is_base_of_v<Group, Backend>) {
    return static_cast<Backend&>(*group);
  } else {
    return static_cast<Backend&>(*group->getBackend(c10::DeviceType::CUDA));
  }
}

c10d::ProcessGroupNCCL& nccl_of(const ProcessGroupPtr& group) {
  return backend_of<c10d::ProcessGroupNCCL>(group);
}

ProcessGroupPtr make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                     int device, std::chrono::milliseconds timeout) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  const auto backend =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, options);
  return as_process_group(store, rank, world_size, backend, kNccl);
}

// Their names, and whether they may be called at all, differ between versions.
template <class Backend>
void shut_down_backend(Backend& backend) {
  if constexpr (requires { backend.shutdown(); }) backend.shutdown();
}

template <class Backend>
void abort_backend(Backend& backend) {
  if constexpr (requires { backend.abort(); }) {
    backend.abort();
  } else if constexpr (requires { backend.abort(std::string()); }) {
    backend.abort(std::string("ddp-doctor: the rank aborts"));
  }
}

}  // namespace
}  // namespace ddp_doctor

extern "C" __attribute__((visibility("default")))
const ddp_doctor::NcclPlugin ddp_doctor_nccl_plugin;
const ddp_doctor::NcclPlugin ddp_doctor_nccl_plugin{
    ddp_doctor::version, ddp_doctor::gpus, ddp_doctor::make,
    [](const ddp_doctor::ProcessGroupPtr& group) {
      ddp_doctor::shut_down_backend(ddp_doctor::nccl_of(group));
    },
    [](const ddp_doctor::ProcessGroupPtr& group) {
      ddp_doctor::abort_backend(ddp_doctor::nccl_of(group));
    }};
