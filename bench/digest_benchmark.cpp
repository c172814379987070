// digest() beside the two floors in the same run: reading the bytes at all, and XXH3 alone.

#include <benchmark/benchmark.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;

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

void floor_read(benchmark::State& state) {
  const auto& words = storage();
  for (auto _ : state) {
    benchmark::DoNotOptimize(std::accumulate(words.begin(), words.end(), std::uint32_t{0}));
  }
  count_bytes(state);
}
BENCHMARK(floor_read)->Unit(benchmark::kMillisecond);

void floor_xxh3(benchmark::State& state) {
  const auto& words = storage();
  for (auto _ : state) {
    benchmark::DoNotOptimize(XXH3_128bits(words.data(), kBytes));
  }
  count_bytes(state);
}
BENCHMARK(floor_xxh3)->Unit(benchmark::kMillisecond);

void digest_view(benchmark::State& state, DType dtype, const std::vector<std::int64_t>& sizes,
                 const std::vector<std::int64_t>& strides) {
  const auto& words = storage();
  for (auto _ : state) {
    benchmark::DoNotOptimize(digest({words.data(), dtype, sizes, strides}));
  }
  count_bytes(state);
}

// 64 MiB each: 2^24 elements of four bytes, 2^25 of two.
BENCHMARK_CAPTURE(digest_view, float32_contiguous, DType::kFloat32, {1 << 24}, {1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float32_transposed, DType::kFloat32, {4096, 4096}, {1, 4096})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float32_channels_last, DType::kFloat32, {256, 256, 16, 16},
                  {65536, 1, 4096, 256})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float32_expanded, DType::kFloat32, {4096, 4096}, {0, 1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float64_contiguous, DType::kFloat64, {1 << 23}, {1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, bfloat16_contiguous, DType::kBFloat16, {1 << 25}, {1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(digest_view, float16_contiguous, DType::kFloat16, {1 << 25}, {1})
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
