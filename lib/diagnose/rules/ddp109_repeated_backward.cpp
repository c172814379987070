// SPDX-License-Identifier: BSD-3-Clause
// DDP109: more than one backward after one forward of the wrapper, or after several. They prepare
// the reducer for one backward only.

#include <fmt/format.h>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// Backward passes after the reduced one through the same forward.
std::size_t repeated(const StepRecord& step, int wrapper) {
  std::size_t count = 0;
  bool reduced = false;
  for (const auto& pass : backwards_of(step.trace, wrapper)) {
    if (pass.forward != BackwardPass::Forward::kNone) {
      reduced = pass.reduced;
    } else if (reduced && !pass.reduced) {
      ++count;
    }
  }
  return count;
}

Verdict check_repeated_backward(const Timeline& timeline) {
  if (!timeline.wrapper) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kRepeatedBackward);
  std::size_t affected = 0;
  for (const auto* step : steps) {
    std::size_t extra = 0;
    for (const auto* record : step->records())
      extra = std::max(extra, repeated(*record, *timeline.wrapper));
    if (extra == 0 || differing(timeline, *step, Stage::kGradient).empty()) continue;
    ++affected;
    if (finding.first_step) continue;
    finding.first_step = step->number;
    finding.evidence["backwards"] = step->first()->backwards;
    finding.evidence["not_reduced"] = extra;
  }
  if (affected == 0) return std::vector<Finding>{};
  finding.where = where(timeline, "backward-again");
  if (!finding.where) finding.where = where(timeline, "backward");
  finding.ranks = timeline.ranks();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "In {} of {} a backward followed another without a forward of the wrapper in between. "
      "Forwards prepare the reducer for one backward: only the first was reduced, and the "
      "gradients of {} stayed local.",
      affected, count_of(steps.size(), "step"),
      count_of(finding.evidence["not_reduced"].get<std::size_t>(), "later backward"));
  finding.prescription = {
      "Add the losses and call backward once, or call each loss's backward before the next forward "
      "of the wrapper.",
      "allreduce-flat"};
  return std::vector{finding};
}

}  // namespace

const Rule kRepeatedBackward = {
    .code = "DDP109",
    .name = "repeated-backward",
    .severity = Severity::kError,
    .headline = "several backwards after one forward; only one was reduced",
    .check = check_repeated_backward,
    .scope = Scope::kWrapper,
    .needs = {.steps = 1},
    .lasting = true,
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
