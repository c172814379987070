// SPDX-License-Identifier: BSD-3-Clause
// Stands in for Gloo's header of this name; see gloo/algorithm.h here.
#pragma once

#include <gloo/transport/device.h>

#include <chrono>
#include <memory>

namespace gloo {

class Context {
 public:
  // Called in an inline function of ProcessGroupGloo.hpp that we never call; defined nowhere.
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
