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

// Whether the lines at which `other` is, from the function on in which it parts from `training`,
// are under an `if` that asks for the rank, such as `if rank == 0:` or `if is_main_process():`.
bool under_rank_condition(const std::vector<Frame>& training, const std::vector<Frame>& other);

// `training` is in a loop of a function that `other` has returned from: it is in the same function
// as the caller, further down.
bool returned_from_loop_of(const std::vector<Frame>& training, const std::vector<Frame>& other);

// The same from one source alone, where there are no stacks: whether `other`, a line that no
// training rank reached, is for some ranks only (true), or follows the loop that `line` trains in
// (false). Nothing if that cannot be decided.
std::optional<bool> for_some_ranks(const std::vector<std::string>& source, int line, int other);

}  // namespace ddp_doctor
