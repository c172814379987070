// SPDX-License-Identifier: BSD-3-Clause
// digest() compared with two lower bounds in the same run, reading the bytes and XXH3 alone, and
// with SHA-1, which Megatron-LM uses to compare replicas. digest_python.py makes one table of these
// and of Python programs.

#include <benchmark/benchmark.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef DDP_DOCTOR_BENCH_OPENSSL
#include <openssl/evp.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kBytes = std::size_t{256} << 20;  // more than any cache holds

// Values of about 0.01, as gradients are; read as bfloat16 as well as float32.
const std::vector<std::uint32_t>& storage() {
  static const std::vector<std::uint32_t> words = [] {
    std::vector<std::uint32_t> result(kBytes / sizeof(std::uint32_t));
    for (std::size_t i = 0; i < result.size(); ++i) {
      const float value = 0.01F * std::sin(static_cast<float>(i));
      std::memcpy(&result[i], &value, sizeof value);
      result[i] = (result[i] & 0xffff0000U) | result[i] >> 16;
    }
    return result;
  }();
  return words;
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kBytes));
}

// The fastest way to read memory that we know of: four sums of 32 bytes, or the same with each
// page's lines prefetched.
using Register = std::uint64_t __attribute__((vector_size(32), aligned(8), may_alias));

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
std::uint64_t
read_all(const char* at, std::size_t bytes, std::size_t ahead) {
  Register a{}, b{}, c{}, d{};
  for (const char* const end = at + bytes; at < end; at += 128) {
    __builtin_prefetch(at + ahead, 0, 2);
    __builtin_prefetch(at + ahead + 64, 0, 2);
    const auto* registers = reinterpret_cast<const Register*>(at);
    a += registers[0];
    b += registers[1];
    c += registers[2];
    d += registers[3];
  }
  a += b + c + d;
  return a[0] + a[1] + a[2] + a[3];
}

// `ahead`: bytes from a read to the prefetch that goes with it.
void floor_read(benchmark::State& state) {
  const auto* bytes = reinterpret_cast<const char*>(storage().data());
  const auto ahead = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(read_all(bytes, kBytes, ahead));
  count_bytes(state);
}
BENCHMARK(floor_read)->Arg(0)->Arg(1024)->Arg(4096)->Arg(16384)->Unit(benchmark::kMillisecond);

void floor_xxh3(benchmark::State& state) {
  const auto& words = storage();
  for (auto _ : state) {
    benchmark::DoNotOptimize(XXH3_128bits(words.data(), kBytes));
  }
  count_bytes(state);
}
BENCHMARK(floor_xxh3)->Unit(benchmark::kMillisecond);

#ifdef DDP_DOCTOR_BENCH_OPENSSL
void sha1(benchmark::State& state) {
  const auto& words = storage();
  unsigned char hash[EVP_MAX_MD_SIZE];
  for (auto _ : state) {
    if (EVP_Digest(words.data(), kBytes, hash, nullptr, EVP_sha1(), nullptr) != 1) {
      state.SkipWithError("libcrypto offers no SHA-1");
      return;
    }
    benchmark::DoNotOptimize(hash);
  }
  count_bytes(state);
}
BENCHMARK(sha1)->Unit(benchmark::kMillisecond);
#endif

void digest_view(benchmark::State& state, DType dtype, const std::vector<std::int64_t>& sizes,
                 const std::vector<std::int64_t>& strides) {
  const auto& words = storage();
  for (auto _ : state) {
    benchmark::DoNotOptimize(digest({words.data(), dtype, sizes, strides}));
  }
  count_bytes(state);
}

// 256 MiB each: 2^26 elements of four bytes, 2^27 of two.
BENCHMARK_CAPTURE(digest_view, float32_contiguous, DType::kFloat32, {1 << 26}, {1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float32_transposed, DType::kFloat32, {8192, 8192}, {1, 8192})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float32_channels_last, DType::kFloat32, {1024, 256, 16, 16},
                  {65536, 1, 4096, 256})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float32_expanded, DType::kFloat32, {8192, 8192}, {0, 1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float64_contiguous, DType::kFloat64, {1 << 25}, {1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, bfloat16_contiguous, DType::kBFloat16, {1 << 27}, {1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float16_contiguous, DType::kFloat16, {1 << 27}, {1})
    ->Unit(benchmark::kMillisecond);

// A small bias: what one call costs beyond its bytes.
void digest_of_64_elements(benchmark::State& state) {
  const std::vector<std::int64_t> sizes = {64};
  const std::vector<std::int64_t> strides = {1};
  const auto& words = storage();
  for (auto _ : state) {
    benchmark::DoNotOptimize(digest({words.data(), DType::kFloat32, sizes, strides}));
  }
}
BENCHMARK(digest_of_64_elements);

}  // namespace
}  // namespace ddp_doctor
