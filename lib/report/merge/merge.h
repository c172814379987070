// SPDX-License-Identifier: BSD-3-Clause
// Merges reports that each have some ranks of a job, for jobs whose records are too large to
// collect in one place. docs/scale.md says what is kept.
//
// The result does not depend on the order, nor on what was merged first: a merged report can be
// merged again.
#pragma once

#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

struct NamedReport {
  std::string name;  // for messages
  Report report;     // of one run
};

// With more ranks, a merged report has no figures by rank, and only the unusual ends of ranks.
inline constexpr std::size_t kMaxRanksOneByOne = 64;

// At least one. Throws Error if two have the same rank, or they are not from one job.
Report merge(std::vector<NamedReport> reports);

// ---- its parts

// Merges rows of the same step.
std::vector<StepRow> merge_steps(const std::vector<const RunReport*>& runs,
                                 const RunReport& merged);

// Merges findings of the same rule, parameters and place; `between` are those that only all reports
// together show. Consequences are nested again.
std::vector<Finding> merge_findings(const std::vector<const Report*>& reports,
                                    std::vector<Finding> between);

// What a comparison of roots finds: DDP302, DDP102, DDP301 without a cause.
std::vector<Finding> between_reports(const RunReport& merged);
bool is_between_reports(const Finding& finding);
// Weights that differed between reports are equal again later: ranks that train separately and
// average their weights every few steps (local SGD) look like this, and a bug can.
bool come_together(const RunReport& merged);
// Which of these three rules the roots of all ranks decide.
std::vector<std::string> decided_by_roots(const RunReport& merged);
// Names ranks whose roots are of different tensors; empty if there are none.
std::optional<std::string> note_on_uncompared(const RunReport& run);

}  // namespace ddp_doctor
