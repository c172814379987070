// SPDX-License-Identifier: BSD-3-Clause
// The smallest change to the user's own code that does what a finding prescribes, at the line that
// it names.
#pragma once

#include <optional>
#include <string>

#include "lib/report/report.h"

namespace ddp_doctor {

// Reads the file that the finding or the run points at. Empty if it cannot be read or does not look
// as expected.
std::optional<Change> change_for(const Finding& finding, const RunReport& run);

// Its lines before and after as a diff ("-", "+"), each after `indent`.
std::string diff_of(const Change& change, const std::string& indent = "");

}  // namespace ddp_doctor
