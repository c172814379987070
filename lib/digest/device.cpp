// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lib/digest/cuda/cuda_api.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

// In the folder of the library that contains this code, unless DDP_DOCTOR_CUDA_LIBRARY is set.
std::string library_file() {
  if (const char* named = std::getenv("DDP_DOCTOR_CUDA_LIBRARY")) return named;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&library_file), &here) == 0) return {};
  return std::filesystem::path(here.dli_fname).parent_path() / "libddp-doctor-cuda.so";
}

struct Library {
  decltype(&ddpc_error) error;
  decltype(&ddpc_begin) begin;
  decltype(&ddpc_wait) wait;
  decltype(&ddpc_result) result;
  decltype(&ddpc_end) end;

  [[noreturn]] void fail() const { throw Error(error()); }
};

const Library& library() {
  static const Library loaded = [] {
    const std::string file = library_file();
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw Error("this build of ddp-doctor does not include " + file);
    Library found{};
    const auto find = [handle, &file](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      if (function == nullptr) throw Error(file + " has no " + name + ": reinstall ddp-doctor");
    };
    find("ddpc_error", found.error);
    find("ddpc_begin", found.begin);
    find("ddpc_wait", found.wait);
    find("ddpc_result", found.result);
    find("ddpc_end", found.end);
    return found;
  }();
  return loaded;
}

}  // namespace

DeviceBatch::DeviceBatch(int device, void* stream, std::span<const DeviceTensor> tensors,
                         bool copy) {
  std::vector<ddpc_tensor> list;
  for (const auto& tensor : tensors)
    list.push_back({tensor.data, static_cast<std::int32_t>(tensor.dtype), tensor.numel});
  batch_.reset(library().begin(device, stream, static_cast<std::int64_t>(list.size()), list.data(),
                               copy ? 1 : 0));
  if (batch_ == nullptr) library().fail();
}

void DeviceBatch::End::operator()(ddpc_batch* batch) const { library().end(batch); }

void DeviceBatch::wait() const {
  if (library().wait(batch_.get()) != 0) library().fail();
}

DeviceDigest DeviceBatch::result(std::size_t i) const {
  ddpc_digest found{};
  if (library().result(batch_.get(), static_cast<std::int64_t>(i), &found) != 0) library().fail();
  DeviceDigest result;
  result.digest = {std::to_array(found.bits), found.l2_norm, found.max_abs, found.nonfinite,
                   found.numel};
  result.samples =
      std::span<const double>(found.samples, static_cast<std::size_t>(found.sample_count));
  result.copy = {static_cast<const std::byte*>(found.copy),
                 static_cast<std::size_t>(found.copy_bytes)};
  return result;
}

}  // namespace ddp_doctor
