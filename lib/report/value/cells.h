// SPDX-License-Identifier: BSD-3-Clause
// What stands in the tables of a report, whoever renders them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor::cells {

// The steps that any run has, ascending; and a run's row of one of them, null if it has none.
std::vector<std::int64_t> step_numbers(const Report& report);
const StepRow* row_at(const RunReport& run, std::int64_t step);

// "0.04043", "2.100e-06"; "-" if unknown.
std::string figure(const std::optional<double>& value);
// "1.01", "12.3", "1234": `digits` significant digits, more only before the decimal point.
std::string milliseconds(double ms, int digits = 3);
// A figure of `time`, with no more digits than the spread supports: "2" of 2.44 in 0.763 to 6.6.
std::string milliseconds(double ms, const StepTime& time);

// Of the known figures; and "0.04043 .. 0.05" or, where both are equal, one figure.
Range range_of(const ByRank& values);
void add(Range& range, const Range& other);
std::string in_words(const Range& range);

// "0", "1.769e-04", "0 (bits differ)" for 0.0 against -0.0, "> 0" if no values were kept, "-" if a
// rank is missing.
std::string drift(const StepRow& row);
// The same along the dimension at that place in MeshMap::dimensions.
std::string drift_along(const StepRow& row, std::size_t dimension);
std::string synced(const StepRow& row);

// One figure if it is equal on all ranks; otherwise up to four ranks one by one, and more of them
// as a range.
std::string gradient_norm(const StepRow& row);
std::string loss(const StepRow& row);

// "1.12 (1.08 .. 1.15)": step time relative to another run's; "-" without repeats.
std::string cost(const RunReport& run);

// Indices of unused parameters: once where all ranks agree, "r0: 4 5  r1: -" where they do not.
std::string unused(const RunReport& run, const StepRow& row);

// On some rank.
bool leaves_unused(const StepRow& row, int index);

}  // namespace ddp_doctor::cells
