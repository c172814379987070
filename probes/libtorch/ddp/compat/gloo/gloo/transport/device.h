// SPDX-License-Identifier: BSD-3-Clause
// Stands in for Gloo's header of this name; see gloo/algorithm.h here.
#pragma once

namespace gloo {
namespace transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

}  // namespace transport
}  // namespace gloo
