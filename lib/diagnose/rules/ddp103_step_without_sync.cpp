// SPDX-License-Identifier: BSD-3-Clause
// DDP103: the last micro-batch before optimizer.step() ran under no_sync, so its gradients, or
// those of all micro-batches, were never averaged; or fully_shard was told not to reduce the
// gradients of the last one.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

// Whether fully_shard reduced `over` ("shards", "replicas") in the step's last backward.
bool reduced(const Timeline& timeline, const TimelineStep& step, const char* over) {
  const auto* fact = timeline.fact(timeline.first_rank(), "fully_shard", over, step.number);
  return fact == nullptr || nlohmann::json::parse(fact->value, nullptr, false) != false;
}

Verdict check_fully_shard(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kStepWithoutSync);
  std::size_t without = 0;
  bool shards = false;
  for (const auto* step : steps) {
    const bool kept = !reduced(timeline, *step, "shards");
    if (step->first()->backwards == 0 || (!kept && reduced(timeline, *step, "replicas"))) continue;
    ++without;
    shards = shards || kept;
    if (!finding.first_step) finding.first_step = step->number;
  }
  if (without == 0) return std::vector<Finding>{};
  finding.where = where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  finding.evidence["kind"] = shards ? "not-reduced" : "not-all-reduced";
  finding.evidence["steps_without_sync"] = without;
  finding.evidence["steps_seen"] = steps.size();
  const char* setting =
      shards ? "set_requires_gradient_sync(False)" : "set_requires_all_reduce(False)";
  finding.message = fmt::format(
      "In {} of {} the optimizer stepped while {} was in effect: fully_shard kept the gradients of "
      "the last micro-batch {}, and the optimizer did not get them.",
      without, count_of(steps.size(), "step"), setting,
      shards ? "unreduced" : "without reducing them over the replicas");
  finding.prescription = {
      fmt::format("Call {}(True) before the last micro-batch of each step.",
                  shards ? "set_requires_gradient_sync" : "set_requires_all_reduce"),
      ""};
  return std::vector{finding};
}

Verdict check_step_without_sync(const Timeline& timeline) {
  if (!timeline.wrapper) return check_fully_shard(timeline);
  const auto steps = complete_steps(timeline);
  if (const char* reason = why_apart(timeline)) return Undecidable{reason};
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
  finding.where = where_stepped(timeline, finding.first_step);
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
                               .needs = {.steps = 1},
                               .on_mesh = OnMesh::kHolds,
                               .explains = {{&kGradientsOutOfSync},
                                            {&kPartialSync},
                                            {&kWeightsDrift},
                                            {&kNotReducedOverDimension},
                                            {&kUnusedParameters},
                                            {&kUnusedButUpdated}}};

}  // namespace ddp_doctor
