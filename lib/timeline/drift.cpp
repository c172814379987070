// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/drift.h"

#include <cmath>
#include <limits>

#include "lib/digest/elements.h"

namespace ddp_doctor {

std::vector<double> to_doubles(std::span<const std::uint8_t> bytes, DType dtype) {
  const std::size_t size = element_size(dtype);
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = as_double(bytes.data() + i * size, dtype);
  return values;
}

void Spread::add(const std::vector<double>& replica) {
  if (replicas_++ == 0) {
    low_ = high_ = replica;
    nans_.resize(replica.size());
  }
  for (std::size_t i = 0; i < replica.size(); ++i) {
    nans_[i] += std::isnan(replica[i]);
    low_[i] = std::fmin(low_[i], replica[i]);
    high_[i] = std::fmax(high_[i], replica[i]);
  }
}

double Spread::largest() const {
  double largest = 0.0;
  for (std::size_t i = 0; i < low_.size(); ++i) {
    if (nans_[i] == replicas_) continue;
    if (nans_[i] > 0) return std::numeric_limits<double>::quiet_NaN();
    if (low_[i] == high_[i]) continue;  // also equal infinities, whose difference would be NaN
    largest = std::fmax(largest, high_[i] - low_[i]);
  }
  return largest;
}

}  // namespace ddp_doctor
