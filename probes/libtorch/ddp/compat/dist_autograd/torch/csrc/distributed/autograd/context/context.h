// SPDX-License-Identifier: BSD-3-Clause
// Stands in for a header that Debian's libtorch-dev 1.13.1 does not ship, though its reducer.hpp
// includes it. The Reducer only keeps a shared pointer to this class, and only libtorch makes one:
// the layout is the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch {
namespace distributed {
namespace autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};

using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace autograd
}  // namespace distributed
}  // namespace torch
