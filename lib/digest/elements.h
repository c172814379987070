// Single elements of a tensor as doubles, and the few by which a record samples it.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// The element at `at`, which may be unaligned; exact but for integers beyond 2^53.
double as_double(const void* at, DType dtype);

inline constexpr std::int64_t kSamplePositions = 8;

// The elements at the row-major positions (2k + 1) * numel / 16, k = 0 to 7; all elements of a
// tensor that has no more than 8.
std::vector<double> sample(const TensorView& tensor);

}  // namespace ddp_doctor
