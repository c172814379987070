// SPDX-License-Identifier: BSD-3-Clause
// Exact differences between replicas, from the values that the records kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// Elements as doubles; integers and bool as their values.
std::vector<double> to_doubles(std::span<const std::uint8_t> bytes, DType dtype);

// The maximum difference between replicas, added one by one.
class Spread {
 public:
  // As many elements each time.
  void add(const std::vector<double>& replica);
  // max over elements and pairs of replicas of |a_i - b_i|; NaN if any element is NaN in one
  // replica and not in another, infinity if it is infinite in one only.
  double largest() const;

 private:
  std::vector<double> low_, high_;
  std::vector<std::size_t> nans_;
  std::size_t replicas_ = 0;
};

}  // namespace ddp_doctor
