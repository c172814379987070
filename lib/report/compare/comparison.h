// SPDX-License-Identifier: BSD-3-Clause
// Runs side by side: their names, what a step of each costs, where they first differ.
#pragma once

#include "lib/report/value/report.h"

namespace ddp_doctor {

// Fills in labels and costs and, in a comparison, equalities and the difference.
void compare_runs(Report& report);

// Of `run` relative to `base`, by their repeats if there are any; empty if one has no step time.
std::optional<Cost> cost_between(const RunReport& run, const RunReport& base);

// "1.12 times the step time of ddp (1.08 to 1.15 in 6 pairs of runs)"; "no measurable difference
// ..." if the interval contains 1.
std::string describe(const Cost& cost, const std::string& base);

// "equal bit for bit in 8 steps and 4 parameters", or where they first differ.
std::string describe(const Equality& equality);

}  // namespace ddp_doctor
