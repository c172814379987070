// What a report prints about a tensor, gathered block by block beside the hash of the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/digest/digest.h"

namespace ddp_doctor {

struct Statistics {
  double sum_of_squares = 0.0;
  double max_abs = 0.0;
  std::int64_t nonfinite = 0;
};

// Adds whole elements: `bytes` of them, at most 1 MiB, at `block`, which may be unaligned. The
// result depends on the data and on where a tensor is cut into blocks, on nothing else.
void add_block(DType dtype, const std::byte* block, std::size_t bytes, Statistics& statistics);

}  // namespace ddp_doctor
