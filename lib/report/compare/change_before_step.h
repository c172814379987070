// SPDX-License-Identifier: BSD-3-Clause
// Where in a training loop gradients can be averaged by hand: after the last backward before
// optimizer.step(), and so before whatever unscales, clips or changes them otherwise.
#pragma once

#include <optional>
#include <string>

#include "lib/diagnose/finding.h"

namespace ddp_doctor {

// For the optimizer that steps at this line. Without lines to insert where the text of the program
// does not tell the place: the backward is in another function, a branch of its own, or a closure.
// Empty if the line cannot be read, or no optimizer steps there.
std::optional<Change> change_before_step(const std::string& file, int line);

}  // namespace ddp_doctor
