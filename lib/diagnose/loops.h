// SPDX-License-Identifier: BSD-3-Clause
// Whether a rank that is elsewhere is still in the loop in which another one trains, by their
// stacks and the user's source.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/timeline/stack.h"

namespace ddp_doctor {

// Lines of a Python source, from 1: `other` lies in the innermost loop around `line`. Nothing if
// there is no loop around it.
std::optional<bool> in_loop_of(const std::vector<std::string>& source, int line, int other);

// Where the stacks part, within one function of the user's: is `other` in the loop that `training`
// is in? Nothing if that cannot be told.
std::optional<bool> in_loop_of(const std::vector<Frame>& training, const std::vector<Frame>& other);

}  // namespace ddp_doctor
