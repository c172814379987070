// SPDX-License-Identifier: BSD-3-Clause
// What stands in the tables of a report, whoever renders them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/report/report.h"

namespace ddp_doctor::cells {

// The steps that any run has, ascending; and a run's row of one of them, null if it has none.
std::vector<std::int64_t> step_numbers(const Report& report);
const StepRow* row_at(const RunReport& run, std::int64_t step);

// "0.04043", "-" where it is not known.
std::string figure(const std::optional<double>& value);

// "0", "1.769e-04", "0 (bits differ)" for 0.0 against -0.0, "> 0" where no values were kept, "-"
// where ranks are missing.
std::string drift(const StepRow& row);
std::string synced(const StepRow& row);

// Up to four ranks one by one; more of them as a range, or as one figure where all are equal.
std::string gradient_norm(const StepRow& row);
std::string loss(const StepRow& row);

// "1.12 (1.08 .. 1.15)": step time relative to another run's; "-" where no
// repeats tell.
std::string cost(const RunReport& run);

// Indices of unused parameters: once where all ranks agree, "r0: 4 5  r1: -" where they do not.
std::string unused(const RunReport& run, const StepRow& row);

// On some rank.
bool leaves_unused(const StepRow& row, int index);

}  // namespace ddp_doctor::cells
