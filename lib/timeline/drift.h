// Exact differences between replicas, from the values that the records kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// Elements as doubles; integers and bool as their values.
std::vector<double> to_doubles(std::span<const std::uint8_t> bytes, DType dtype);

// max over elements and pairs of ranks of |a_i - a_j|; NaN if any element is NaN in one replica and
// not in another, or infinite in one only. `replicas` hold equally many elements.
double max_abs_difference(const std::vector<std::vector<double>>& replicas);

}  // namespace ddp_doctor
