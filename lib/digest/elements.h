// SPDX-License-Identifier: BSD-3-Clause
// Single elements of a tensor as doubles, and the few that a record samples.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// The element at `at`, which may be unaligned; exact but for integers beyond 2^53.
double as_double(const void* at, DType dtype);

inline constexpr std::size_t kSamplePositions = 8;

// Up to kSamplePositions elements of a tensor, kept in place: there are some for each tensor, stage
// and step.
class SampledValues {
 public:
  using value_type = double;
  using const_iterator = const double*;

  SampledValues() = default;
  // Values beyond kSamplePositions are ignored.
  SampledValues(std::span<const double> values) {
    for (const double value : values.first(std::min(values.size(), kSamplePositions)))
      push_back(value);
  }
  SampledValues(std::initializer_list<double> values)
      : SampledValues(std::span(values.begin(), values.size())) {}

  void push_back(double value) { values_[size_++] = value; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const_iterator begin() const { return values_.data(); }
  const_iterator end() const { return begin() + size_; }
  double operator[](std::size_t i) const { return values_[i]; }
  // As doubles compare: 0.0 equals -0.0, and a NaN nothing.
  bool operator==(const SampledValues& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<double, kSamplePositions> values_{};
  std::size_t size_ = 0;
};

// The elements at the row-major positions (2k + 1) * numel / 16, k = 0 to 7; all elements of a
// tensor with at most 8.
SampledValues sample(const TensorView& tensor);

}  // namespace ddp_doctor
