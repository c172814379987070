// SPDX-License-Identifier: BSD-3-Clause
// Which modules, on which ranks, in which steps: what was seen of unused parameters, in as few
// words as it can be said.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "lib/report/report.h"

namespace ddp_doctor {

// Parameters that were unused on the same ranks in the same steps.
struct UnusedModules {
  // The topmost modules whose trainable parameters all were, and by name those of other modules.
  std::vector<std::string> names;
  std::size_t parameters = 0;
  std::vector<int> ranks;
  std::vector<std::int64_t> steps;  // in which it was so on any of these ranks
};

// The largest group first. Empty: every trainable parameter was used on every rank in every step
// that was examined.
std::vector<UnusedModules> unused_modules(const RunReport& run);

// "other (2 parameters): ranks 0 and 1, in 8 of 8 steps, first in step 1"
std::string describe(const UnusedModules& group, const RunReport& run);

}  // namespace ddp_doctor
