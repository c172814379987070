// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/module/cuda_stream.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

namespace ddp_doctor {

std::optional<void*> current_cuda_stream(c10::DeviceIndex device) {
  // CUDAStream::stream() of c10/cuda/CUDAStream.h, looked up so that nothing of CUDA is linked. A
  // CUDAStream contains only a Stream.
  using ToNative = void* (*)(const c10::Stream*);
  static const auto to_native =
      reinterpret_cast<ToNative>(::dlsym(RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv"));
  if (to_native == nullptr) return {};
  constexpr auto kCuda = c10::DeviceType::CUDA;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(kCuda).getStream({kCuda, device});
  return to_native(&stream);
}

}  // namespace ddp_doctor
