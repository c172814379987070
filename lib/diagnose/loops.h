// SPDX-License-Identifier: BSD-3-Clause
// Whether a rank is still in the loop in which another rank trains, by their stacks and the user's
// source.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/timeline/stack.h"

namespace ddp_doctor {

// Whether `other` is in the innermost loop around `line`, in a Python source with lines counted
// from 1. Nothing if there is no loop around it.
std::optional<bool> in_loop_of(const std::vector<std::string>& source, int line, int other);

// Whether `other` is in the loop that `training` is in, decided in the user's function where the
// stacks diverge. Nothing if that cannot be decided.
std::optional<bool> in_loop_of(const std::vector<Frame>& training, const std::vector<Frame>& other);

}  // namespace ddp_doctor
