// SPDX-License-Identifier: BSD-3-Clause
// The trace of a step: what happened, in order, as a probe wrote it down (docs/record.md).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// ("F0+", 1), ("B0+", 2), ...: an action and how often it happened in a row. A trace that was cut
// starts with "...".
std::vector<std::pair<std::string, int>> actions_of(const std::string& trace);

// If `action` is a backward pass that brought gradients to `wrapper`: whether it was reduced.
std::optional<bool> backward_of(const std::string& action, int wrapper);

// A backward pass that brought gradients to a wrapper, and the forward that it belongs to.
struct BackwardPass {
  enum class Forward {
    kThrough,  // through the wrapper, with synchronization
    kNoSync,   // through the wrapper, under no_sync
    kAround,   // of the wrapped module, around the wrapper
    kNone,     // none since the last backward: a second pass through one graph
  } forward = Forward::kNone;
  bool reduced = false;
};

std::vector<BackwardPass> backwards_of(const std::string& trace, int wrapper);

// A checkpoint ran a backward inside a backward (use_reentrant=True), on some rank in some step.
bool checkpoints_reentrantly(const Timeline& timeline);

}  // namespace ddp_doctor
