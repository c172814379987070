// SPDX-License-Identifier: BSD-3-Clause
// Prescriptions and the runs that prove them: a finding that names a strategy is matched with the
// run of that strategy.
#pragma once

#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// Fills in `proof` of each finding whose prescribed strategy was run, and makes the cheapest proven
// strategy the prescribed one. Names the change to the user's code that does the same: as lines if
// a run of the program with that change cured the finding, otherwise in words.
void attach_proofs(Report& report);

// The changes of findings that a strategy was proven to cure, or that none is known for.
std::vector<TriedChange> changes_to_try(const Report& report);

// What is still to be tried: of each finding that is not cured yet, what it prescribes, or where
// that was run, what else would do. Each once, the first finding's first; only those among
// `possible`.
std::vector<std::string> prescribed(const Report& report, const std::vector<std::string>& possible);

// What the strategies "allreduce-dimension:..." of a report's findings reduce, by strategy, for the
// probe: {"dimension", "groups", "operation", "parameters"}.
nlohmann::json reductions(const Report& report);

// What cures every finding that has a cure, one strategy for each, joined by "+"; empty where one
// strategy does, or fewer than two findings were cured.
std::string combined(const Report& report);

}  // namespace ddp_doctor
