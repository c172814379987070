// SPDX-License-Identifier: BSD-3-Clause
// DDP103: the last micro-batch before optimizer.step() ran under no_sync, so its gradients, or
// those of all micro-batches, were never averaged.

#include <fmt/format.h>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

using Forward = BackwardPass::Forward;

// How many micro-batches of the step came after the last reduction; 0 if the last one was reduced.
std::size_t unsynchronized_at_the_end(const StepRecord& step, int wrapper) {
  std::size_t count = 0;
  for (const auto& pass : backwards_of(step.trace, wrapper))
    count = pass.reduced || pass.forward != Forward::kNoSync ? 0 : count + 1;
  return count;
}

Verdict check_step_without_sync(const Timeline& timeline) {
  if (!timeline.wrapper) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  if (averages_weights(timeline)) return Undecidable{kAveragesWeights};
  Finding finding = finding_of(kStepWithoutSync);
  std::size_t without = 0;
  for (const auto* step : steps) {
    std::size_t last = 0;
    for (const auto* record : step->records())
      last = std::max(last, unsynchronized_at_the_end(*record, *timeline.wrapper));
    if (last == 0 || differing(timeline, *step, Stage::kGradient).empty()) continue;
    ++without;
    if (finding.first_step) continue;
    finding.first_step = step->number;
    finding.evidence["micro_batches"] = step->first()->backwards;
    finding.evidence["micro_batches_after_the_last_reduction"] = last;
  }
  if (without == 0) return std::vector<Finding>{};
  finding.where = where(timeline, "step");
  finding.ranks = timeline.ranks();
  finding.evidence["steps_without_sync"] = without;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "In {} of {} the optimizer stepped after the last micro-batch ran under no_sync ({} of {} "
      "micro-batches in step {}): their gradients were never averaged.",
      without, count_of(steps.size(), "step"),
      finding.evidence["micro_batches_after_the_last_reduction"].get<std::size_t>(),
      finding.evidence["micro_batches"].get<int>(), *finding.first_step);
  finding.prescription = {
      "Run the last micro-batch before optimizer.step() outside no_sync, both forward and "
      "backward. Check the condition that selects the last micro-batch, and the end of an epoch.",
      "allreduce-flat"};
  return std::vector{finding};
}

}  // namespace

const Rule kStepWithoutSync = {.code = "DDP103",
                               .name = "step-without-sync",
                               .severity = Severity::kError,
                               .headline = "the optimizer stepped on gradients left under no_sync",
                               .check = check_step_without_sync,
                               .scope = Scope::kWrapper,
                               .needs = {.steps = 1}};

}  // namespace ddp_doctor
