// SPDX-License-Identifier: BSD-3-Clause
// The smallest change to the user's own code that does what a finding prescribes, at the line that
// it names.
#pragma once

#include <optional>
#include <string>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// By run.place_change, which reads the file that the finding or the run points at. Empty if it
// cannot be read or does not look as expected. What it proposes is a guess from the text of the
// program, until a run tried it.
std::optional<Change> change_for(const Finding& finding, const RunReport& run);

// Whether a strategy has a meaning for that program: gradients of shards, or of ranks that compute
// something together, are not to be averaged over all ranks.
bool fits(const std::string& strategy, const RunReport& run);

// The file with the change. Throws Error if it does not hold the lines that the change replaces.
std::string apply(const Change& change);

// Its lines before and after as a diff ("-", "+"), each after `indent`.
std::string diff_of(const Change& change, const std::string& indent = "");

}  // namespace ddp_doctor
