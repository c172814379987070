// SPDX-License-Identifier: BSD-3-Clause
// DDP503: a rank ran out of data, or decided alone to stop, while others still train.

#include <fmt/format.h>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

std::string steps_of(const Timeline& timeline) {
  std::string text;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    const std::int64_t steps =
        record == nullptr || record->steps.empty() ? 0 : record->steps.back().step;
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : ", ", rank, steps);
  }
  return text;
}

Verdict check_uneven_inputs(const Timeline& timeline) {
  const auto divergence = divergence_of(timeline);
  if (!divergence || divergence->reason != Reason::kUneven) return std::vector<Finding>{};
  Finding finding = finding_of(kUnevenInputs, timeline, *divergence);
  const std::string waiting = waiting_in(*divergence);
  std::string next = "finished";
  if (const auto at = divergence->at.find(finding.ranks.front()); at != divergence->at.end())
    next = (finding.ranks.size() == 1 ? "is in " : "are in ") + name_of(*at->second);
  finding.message = fmt::format(
      "{} left the loop that the others are still in ({}) and {}, while {} (steps completed: {}).",
      ranks_of(finding.ranks),
      divergence->cause.empty() ? "no more data, a skipped step, or a decision to stop"
                                : divergence->cause,
      next, waiting, steps_of(timeline));
  finding.message[0] = 'R';  // "Rank 1 ...", "Ranks 0 and 1 ..."
  finding.evidence["decided_to_stop"] = divergence->decided;
  if (divergence->decided) {
    finding.prescription = {
        "Let all ranks decide together when to stop: all-reduce the loss or the flag on which the "
        "decision rests, or broadcast rank 0's decision.",
        ""};
    return std::vector{finding};
  }
  finding.prescription = {
      "Give every rank the same number of batches (DistributedSampler, drop_last, a fixed number "
      "of steps), let all ranks decide together when to stop, or train inside `with "
      "model.join():`.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kUnevenInputs = {.code = "DDP503",
                            .name = "uneven-inputs",
                            .severity = Severity::kError,
                            .headline = "a rank left its training loop while others still train",
                            .check = check_uneven_inputs,
                            .scope = Scope::kJob,
                            .needs = {.ranks = 2},
                            .on_mesh = OnMesh::kHolds,
                            .explains = {{.rule = &kRankCrashed, .except = "left"}}};

}  // namespace ddp_doctor
