// SPDX-License-Identifier: BSD-3-Clause
// DDP101: backward passes whose forward bypassed the wrapper. The wrapper's forward prepares the
// reducer at its end (prepare_for_backward). A loss that does not come from that forward reduces
// nothing, without an error.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

bool bypassed_wrapper(const StepRecord& step) {
  return step.forwards_around_wrapper > 0 && step.forwards_through_wrapper == 0 &&
         step.backwards > 0;
}

// The first step of the run of bypassing steps that ends with `step`: steps that were counted but
// not examined are included.
std::int64_t first_bypassed_step(const Timeline& timeline, const TimelineStep& step) {
  std::int64_t first = step.number;
  for (auto before = timeline.steps.rbegin(); before != timeline.steps.rend(); ++before) {
    if (before->number >= step.number) continue;
    const bool around =
        std::any_of(before->ranks.begin(), before->ranks.end(), [](const StepRecord* record) {
          return record != nullptr && bypassed_wrapper(*record) && record->collectives == 0;
        });
    if (before->examined() || !around) break;
    first = before->number;
  }
  return first;
}

Verdict check_wrapper_bypassed(const Timeline& timeline) {
  if (!timeline.has_wrapper()) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);

  Finding finding = finding_of(kWrapperBypassed);
  finding.where = where(timeline, "forward-around");
  std::set<int> ranks;
  std::size_t bypassed = 0;
  int around = 0;
  for (const auto* step : steps) {
    std::vector<int> here;
    bool by_hand = false;
    for (int rank : timeline.ranks()) {
      const auto& record = *step->at(rank);
      by_hand = by_hand || synchronizes_by_hand(record);
      if (!bypassed_wrapper(record)) continue;
      here.push_back(rank);
      around += record.forwards_around_wrapper;
    }
    // Bypassing the wrapper is correct if something else made the gradients equal.
    by_hand = by_hand || !differing(timeline, *step, Stage::kLocalGradient).empty();
    if (here.empty() || (by_hand && differing(timeline, *step, Stage::kGradient).empty())) continue;
    ++bypassed;
    ranks.insert(here.begin(), here.end());
    if (!finding.first_step) {
      finding.first_step = first_bypassed_step(timeline, *step);
      finding.evidence["gradients_differing"] = differing(timeline, *step, Stage::kGradient).size();
    }
  }
  if (bypassed == 0) return std::vector<Finding>{};
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["steps_bypassed"] = bypassed;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["forwards_around_wrapper"] = around;
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.message = fmt::format(
      "In {} of {} the loss did not go through the DistributedDataParallel wrapper's forward, so "
      "no gradient was reduced: each rank trains its own {}, without an error from PyTorch.",
      bypassed, count_of(steps.size(), "step"), model_of(timeline));
  finding.prescription = {
      "Call the wrapper, ddp(x), instead of ddp.module(x). Move what other methods of the module "
      "compute into its forward.",
      "ddp",
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kWrapperBypassed = {
    .code = "DDP101",
    .name = "wrapper-bypassed",
    .severity = Severity::kError,
    .headline = "the loss did not go through the wrapper's forward",
    .check = check_wrapper_bypassed,
    .scope = Scope::kWrapper,
    .needs = {.ranks = 2, .steps = 1},
    .lasting = true,
    .on_mesh = OnMesh::kHolds,
    .cured_by_wrapper_call = true,
    .explains = {
        {&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}, {&kNotReducedOverDimension}}};

}  // namespace ddp_doctor
