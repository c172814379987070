// SPDX-License-Identifier: BSD-3-Clause
// The memory layout of a tensor view, in as few dimensions as possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// True if the elements lie next to each other in row-major order, as at::Tensor::is_contiguous().
bool is_contiguous(const TensorView& tensor);

// Copies a view's elements in row-major order, some at a time. Dimensions of size 1 are dropped,
// and dimensions that one step passes through are merged, so that a slice of rows is a few long
// runs. The view must have at least one element and outlive this.
class Gather {
 public:
  explicit Gather(const TensorView& tensor);

  // Writes the next elements to `out`, at most `capacity` bytes of whole elements; returns the
  // bytes written, 0 at the end.
  std::size_t next(std::byte* out, std::size_t capacity);

 private:
  struct Dimension {
    std::int64_t size;
    std::int64_t stride;  // bytes
    std::int64_t index;
  };

  void copy_run(std::byte* out, std::int64_t count) const;
  void advance_outer();

  const std::byte* at_;  // of the innermost dimension's first element
  std::int64_t element_;
  Dimension inner_{1, 0, 0};
  std::vector<Dimension> outer_;  // the slowest first
  bool done_ = false;
};

}  // namespace ddp_doctor
