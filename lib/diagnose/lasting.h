// SPDX-License-Identifier: BSD-3-Clause
// Findings that may be announced while the program runs: no later step can withdraw them.
#pragma once

#include <string_view>
#include <vector>

#include "lib/diagnose/finding.h"

namespace ddp_doctor {

// Whether a certain finding of that rule ("DDP101") stays one, whatever the program does next.
bool is_lasting(std::string_view rule);

// Those of the root causes that are certain, at least a warning, and of such a rule.
std::vector<Finding> lasting(std::vector<Finding> findings);

}  // namespace ddp_doctor
