// SPDX-License-Identifier: BSD-3-Clause
// Unused parameters in short: which modules, on which ranks, in which steps.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// Parameters that were unused on the same ranks in the same steps.
struct UnusedModules {
  // The topmost modules without a used trainable parameter, and single parameters of other modules.
  std::vector<std::string> names;
  std::size_t parameters = 0;
  std::vector<int> ranks;
  std::vector<std::int64_t> steps;  // in which any of these ranks did not use them
};

// The largest group first. Empty: every rank used every trainable parameter in every examined step.
std::vector<UnusedModules> unused_modules(const RunReport& run);

// "other (2 parameters): ranks 0 and 1, in 8 of 8 steps, first in step 1"
std::string describe(const UnusedModules& group, const RunReport& run);

}  // namespace ddp_doctor
