// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/cuda/driver.h"

#include <dlfcn.h>

#include <string>

#include "lib/error.h"

namespace ddp_doctor::cuda {
namespace {

constexpr int kOldest = 12000;

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr)
    throw Error(std::string("the CUDA driver has no ") + name +
                ": install a driver for CUDA 12 or later, or exclude GPU tensors");
}

Driver loaded() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error("no CUDA driver found: libcuda.so.1 is missing");
  Result (*version)(int*) = nullptr;
  find(library, "cuDriverGetVersion", version);
  int number = 0;
  if (version(&number) != 0 || number < kOldest)
    throw Error("the CUDA driver supports version " + std::to_string(number / 1000) + "." +
                std::to_string(number % 1000 / 10) + ": 12.0 or later is required");
  Driver driver;
  find(library, "cuInit", driver.init);
  find(library, "cuDeviceGet", driver.device_get);
  find(library, "cuDevicePrimaryCtxRetain", driver.primary_context);
  find(library, "cuCtxPushCurrent_v2", driver.push);
  find(library, "cuCtxPopCurrent_v2", driver.pop);
  find(library, "cuModuleLoadData", driver.load_module);
  find(library, "cuModuleGetFunction", driver.function);
  find(library, "cuModuleGetGlobal_v2", driver.global);
  find(library, "cuLaunchKernel", driver.launch);
  find(library, "cuMemcpyHtoDAsync_v2", driver.copy_to_device);
  find(library, "cuMemHostAlloc", driver.host_allocate);
  find(library, "cuEventCreate", driver.event_create);
  find(library, "cuEventRecord", driver.event_record);
  find(library, "cuEventQuery", driver.event_query);
  find(library, "cuEventSynchronize", driver.event_wait);
  find(library, "cuEventDestroy_v2", driver.event_destroy);
  find(library, "cuStreamWaitEvent", driver.stream_wait);
  find(library, "cuStreamIsCapturing", driver.stream_capturing);
  find(library, "cuThreadExchangeStreamCaptureMode", driver.capture_mode);
  find(library, "cuGetErrorString", driver.error_text);
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver found = [] {
    const Driver driver = loaded();
    if (driver.init(0) != 0) throw Error("the CUDA driver does not start: no GPU is visible");
    return driver;
  }();
  return found;
}

void check(Result result, const char* doing) {
  if (result == 0) return;
  const char* text = nullptr;
  if (driver().error_text(result, &text) != 0 || text == nullptr) text = "unknown error";
  throw Error(std::string(doing) + ": the CUDA driver reports: " + text);
}

}  // namespace ddp_doctor::cuda
