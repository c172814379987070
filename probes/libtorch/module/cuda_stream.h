// SPDX-License-Identifier: BSD-3-Clause
// The program's stream on a GPU, from a LibTorch that may or may not have CUDA.
#pragma once

#include <c10/core/Device.h>

#include <optional>

namespace ddp_doctor {

// The CUstream on which the calling thread's next kernel on that GPU would run; none where LibTorch
// has no CUDA (or AMD's).
std::optional<void*> current_cuda_stream(c10::DeviceIndex device);

}  // namespace ddp_doctor
