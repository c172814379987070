// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/strides.h"

#include <algorithm>
#include <cstring>

namespace ddp_doctor {
namespace {

// With the size as a constant, a copy of one element is one load and one store.
template <std::size_t kSize>
void copy_elements(std::byte* out, const std::byte* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(out + i * kSize, from + i * stride, kSize);
}

}  // namespace

bool is_contiguous(const TensorView& tensor) {
  std::int64_t expected = 1;
  for (std::size_t d = tensor.sizes.size(); d-- > 0;) {
    if (tensor.sizes[d] == 1) continue;  // its stride is never used
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

Gather::Gather(const TensorView& tensor)
    : at_(static_cast<const std::byte*>(tensor.data)),
      element_(static_cast<std::int64_t>(element_size(tensor.dtype))) {
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    const Dimension next{tensor.sizes[d], tensor.strides[d] * element_, 0};
    if (next.size == 1) continue;
    if (!outer_.empty() && outer_.back().stride == next.size * next.stride) {
      outer_.back() = {outer_.back().size * next.size, next.stride, 0};
    } else {
      outer_.push_back(next);
    }
  }
  if (outer_.empty()) return;
  inner_ = outer_.back();
  outer_.pop_back();
}

std::size_t Gather::next(std::byte* out, std::size_t capacity) {
  const auto room = static_cast<std::int64_t>(capacity) / element_;
  std::int64_t written = 0;
  while (!done_ && written < room) {
    const std::int64_t count = std::min(room - written, inner_.size - inner_.index);
    copy_run(out + written * element_, count);
    written += count;
    inner_.index += count;
    if (inner_.index == inner_.size) advance_outer();
  }
  return static_cast<std::size_t>(written * element_);
}

void Gather::copy_run(std::byte* out, std::int64_t count) const {
  const std::byte* from = at_ + inner_.index * inner_.stride;
  if (inner_.stride == element_) {
    std::memcpy(out, from, static_cast<std::size_t>(count * element_));
    return;
  }
  switch (element_) {
    case 1:
      return copy_elements<1>(out, from, inner_.stride, count);
    case 2:
      return copy_elements<2>(out, from, inner_.stride, count);
    case 4:
      return copy_elements<4>(out, from, inner_.stride, count);
    default:
      return copy_elements<8>(out, from, inner_.stride, count);
  }
}

// One row further, carrying into slower dimensions like an odometer.
void Gather::advance_outer() {
  inner_.index = 0;
  for (std::size_t d = outer_.size(); d-- > 0;) {
    Dimension& dimension = outer_[d];
    at_ += dimension.stride;
    if (++dimension.index < dimension.size) return;
    at_ -= dimension.stride * dimension.size;
    dimension.index = 0;
  }
  done_ = true;
}

}  // namespace ddp_doctor
