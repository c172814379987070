// SPDX-License-Identifier: BSD-3-Clause
// Hashes the bytes of a block and computes the statistics for the report. Compiled once per
// instruction set; all sets give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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
  // The same of a block of whole elements: `bytes` of them, at most kBlock, at `block`, which may
  // be unaligned. Adds their figures to `statistics`; these depend on the data and on where a
  // tensor is cut into blocks, on nothing else. Prefetches as many bytes at `next` into the cache.
  std::array<std::uint8_t, 16> (*digest_block)(DType dtype, const std::byte* block,
                                               std::size_t bytes, const std::byte* next,
                                               Statistics& statistics);
};

// Those that this processor can run, the fastest last.
const std::vector<const Kernel*>& kernels();

// digest() by one of them.
TensorDigest digest_with(const Kernel& kernel, const TensorView& tensor);

struct BlockDigest {
  std::array<std::uint8_t, 16> bits;
  Statistics statistics;
};

// digest() of a tensor whose whole blocks a GPU has examined; `rest`: the bytes after them.
TensorDigest digest_of_blocks(DType dtype, std::span<const BlockDigest> blocks,
                              std::span<const std::byte> rest, std::int64_t numel);

}  // namespace ddp_doctor
