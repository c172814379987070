// SPDX-License-Identifier: BSD-3-Clause
// Clipping in hooks on parameters (Tensor.register_hook): before a gradient is accumulated and
// reduced.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

struct HookClipping {
  std::set<int> parameters;  // of a reducer
  std::set<int> ranks;       // where it changed something
  std::int64_t first_step = 0;
  bool by_norm = false;  // to a norm; otherwise each element to a limit
  double limit = 0.0;
};

// Nothing if hooks only look at gradients, or mask or scale them alike.
std::optional<HookClipping> clipping_in_gradient_hooks(const Timeline& timeline);

}  // namespace ddp_doctor
