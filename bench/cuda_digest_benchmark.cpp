// SPDX-License-Identifier: BSD-3-Clause
// Digests of tensors on a GPU: first checks that they equal those of the CPU, then measures their
// speed as a share of the bandwidth of a device-to-device copy in the same run. Uses only the CUDA
// driver, so that compute-sanitizer sees little except our kernels.
//
// usage: cuda_digest_benchmark [--check] [GPU]
// --check: without the timing. Exit code 0; 1: a digest differs; 77: there is no GPU.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "lib/digest/cuda/driver.h"
#include "lib/digest/device.h"
#include "lib/error.h"

using namespace ddp_doctor;
using namespace ddp_doctor::cuda;

namespace {

// Driver functions that only tests use.
struct Extra {
  Result (*allocate)(DevicePointer*, std::size_t);
  Result (*upload)(DevicePointer, const void*, std::size_t);
  Result (*copy)(DevicePointer, DevicePointer, std::size_t, Handle);
  Result (*elapsed)(float*, Handle, Handle);

  Extra() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    find("cuMemAlloc_v2", allocate);
    find("cuMemcpyHtoD_v2", upload);
    find("cuMemcpyDtoDAsync_v2", copy);
    find("cuEventElapsedTime", elapsed);
  }
};

constexpr std::size_t kLargest = std::size_t{1} << 30;

std::vector<float> values(std::size_t count) {
  std::vector<float> values(count);
  std::minstd_rand random(3);
  std::normal_distribution<float> normal;
  for (auto& value : values) value = normal(random);
  return values;
}

int check_digests(int device, DevicePointer memory, const std::vector<float>& host) {
  std::vector<DeviceTensor> there, here;
  for (const auto dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                           DType::kInt64, DType::kUInt8}) {
    const std::size_t element = element_size(dtype);
    for (const std::int64_t numel : {0, 1, 7, 9, 1000, 2048, 4096, 8192, 100'003, 1'000'000}) {
      for (const std::size_t first : {0, 1, 3}) {
        const std::size_t offset = first * element;
        there.push_back({reinterpret_cast<const void*>(memory + offset), dtype, numel});
        here.push_back({reinterpret_cast<const std::byte*>(host.data()) + offset, dtype, numel});
      }
    }
  }
  const DeviceBatch batch(device, nullptr, there, true);
  batch.wait();
  int wrong = 0;
  for (std::size_t i = 0; i < there.size(); ++i) {
    constexpr std::int64_t kOne = 1;
    const TensorView view{here[i].data, here[i].dtype, {&here[i].numel, 1}, {&kOne, 1}};
    const TensorDigest expected = digest(view);
    const DeviceDigest result = batch.result(i);
    const bool same =
        result.digest.bits == expected.bits && result.digest.max_abs == expected.max_abs &&
        result.digest.nonfinite == expected.nonfinite &&
        std::abs(result.digest.l2_norm - expected.l2_norm) <= 1e-6 * expected.l2_norm &&
        (result.copy.empty() ||
         std::memcmp(result.copy.data(), here[i].data, result.copy.size()) == 0);
    if (same) continue;
    ++wrong;
    fmt::print("{} of {} elements: {}, the CPU says {}\n", name_of(here[i].dtype), here[i].numel,
               to_hex(result.digest.bits), to_hex(expected.bits));
  }
  fmt::print("{} digests, {} wrong\n", there.size(), wrong);
  return wrong;
}

// The best of several, in seconds of GPU time.
template <class Work>
double seconds(const Extra& extra, const Work& work) {
  Handle begin, end;
  check(driver().event_create(&begin, 0), "making an event");
  check(driver().event_create(&end, 0), "making an event");
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    check(driver().event_record(begin, nullptr), "recording an event");
    work();
    check(driver().event_record(end, nullptr), "recording an event");
    check(driver().event_wait(end), "waiting");
    float milliseconds = 0;
    check(extra.elapsed(&milliseconds, begin, end), "reading the clock");
    best = std::min(best, milliseconds / 1e3);
  }
  return best;
}

void measure(int device, const Extra& extra, DevicePointer from, DevicePointer to) {
  const double copy =
      seconds(extra, [&] { check(extra.copy(to, from, kLargest, nullptr), "copying on the GPU"); });
  const double bandwidth = 2.0 * kLargest / copy / 1e9;  // each byte is read and written
  fmt::print(
      "| what | GB/s | of the copy's |\n|---|---|---|\n| copy from device to device, bytes read "
      "and written | {:.0f} | 1 |\n",
      bandwidth);
  for (const auto dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::size_t tensors : {std::size_t{1}, std::size_t{300}}) {
      const std::size_t bytes = kLargest / tensors / 16 * 16;
      std::vector<DeviceTensor> list;
      for (std::size_t i = 0; i < tensors; ++i)
        list.push_back({reinterpret_cast<const void*>(from + i * bytes), dtype,
                        static_cast<std::int64_t>(bytes / element_size(dtype))});
      const double time = seconds(extra, [&] {
        const DeviceBatch batch(device, nullptr, list, false);
        batch.wait();
      });
      const double rate = static_cast<double>(bytes * tensors) / time / 1e9;
      fmt::print("| {}, {} tensor(s) | {:.0f} | {:.2f} |\n", name_of(dtype), tensors, rate,
                 rate / bandwidth);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool only_check = false;
  int device = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--check") {
      only_check = true;
    } else {
      device = std::atoi(argv[i]);
    }
  }
  try {
    driver();
  } catch (const Error& error) {
    fmt::print("skipped: {}\n", error.what());
    return 77;
  }
  try {
    int number = 0;
    Handle context = nullptr;
    check(driver().device_get(&number, device), "finding the GPU");
    check(driver().primary_context(&context, number), "using the GPU");
    check(driver().push(context), "using the GPU");
    const Extra extra;
    DevicePointer from = 0, to = 0;
    check(extra.allocate(&from, kLargest), "getting memory of the GPU");
    const auto host = values((16 << 20) / sizeof(float));
    check(extra.upload(from, host.data(), host.size() * sizeof(float)), "copying to the GPU");
    if (check_digests(device, from, host) != 0) return 1;
    if (only_check) return 0;
    check(extra.allocate(&to, kLargest), "getting memory of the GPU");
    measure(device, extra, from, to);
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  return 0;
}
