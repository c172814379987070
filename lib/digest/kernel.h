// What is done to the bytes of a block: one read for the hash, and one from the first-level cache
// for what a report prints. Compiled once per set of instructions; all sets give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// Bytes that fit into the first-level cache together with the next ones.
inline constexpr std::size_t kBlock = 8 * 1024;

struct Statistics {
  double sum_of_squares = 0.0;
  double max_abs = 0.0;
  std::int64_t nonfinite = 0;
};

struct Kernel {
  const char* name;
  // XXH3-128, canonical byte order.
  std::array<std::uint8_t, 16> (*hash)(const void* data, std::size_t bytes);
  // Adds whole elements: `bytes` of them, at most kBlock, at `block`, which may be unaligned.
  // Meanwhile the bytes at `next` are fetched into the cache, as many. The result depends on the
  // data and on where a tensor is cut into blocks, on nothing else.
  void (*add_block)(DType dtype, const std::byte* block, std::size_t bytes, const std::byte* next,
                    Statistics& statistics);
};

// Those that this processor can run, the fastest last.
const std::vector<const Kernel*>& kernels();

// digest() by one of them.
TensorDigest digest_with(const Kernel& kernel, const TensorView& tensor);

}  // namespace ddp_doctor
