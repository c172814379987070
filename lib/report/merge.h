// SPDX-License-Identifier: BSD-3-Clause
// The reports of some ranks of a job each, as one: for jobs whose records nobody wants in one
// place. docs/scale.md says what is kept.
//
// The result does not depend on the order, nor on what was merged first: a merged report can be
// merged again.
#pragma once

#include <string>
#include <vector>

#include "lib/report/report.h"

namespace ddp_doctor {

struct NamedReport {
  std::string name;  // for messages
  Report report;     // of one run
};

// Beyond so many ranks, a merged report has no figures by rank, and of the ranks' ends only those
// that stand out.
inline constexpr std::size_t kMaxRanksOneByOne = 64;

// At least one. Throws Error if two have the same rank, or they are not of one job.
Report merge(std::vector<NamedReport> reports);

// ---- its parts

// Rows of the same step become one.
std::vector<StepRow> merge_steps(const std::vector<const RunReport*>& runs,
                                 const RunReport& merged);

// Findings of the same rule about the same parameters and place become one; `between` are those
// that only all reports together show. Consequences are nested again.
std::vector<Finding> merge_findings(const std::vector<const Report*>& reports,
                                    std::vector<Finding> between);

// What a comparison of the roots shows: DDP302, DDP102, DDP301 without a cause.
std::vector<Finding> between_reports(const RunReport& merged);
bool is_between_reports(const Finding& finding);
// Those of these three rules that the roots decide, all ranks having been seen.
std::vector<std::string> decided_by_roots(const RunReport& merged);
// Ranks whose roots are of different tensors, in a sentence.
std::optional<std::string> note_on_uncompared(const RunReport& run);

}  // namespace ddp_doctor
