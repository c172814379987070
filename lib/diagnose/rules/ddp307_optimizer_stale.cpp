// SPDX-License-Identifier: BSD-3-Clause
// DDP307: gradients arrive at parameters that no optimizer holds, while what the optimizer holds
// gets none.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict check_optimizer_stale(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{"no step was completed by every rank"};
  std::set<int> left_out;  // used, and in no optimizer
  std::set<int> held;
  bool held_used = false;
  for (const auto* step : steps) {
    for (int id : timeline.trainable()) {
      const auto usage = step->usage(step->first_rank(), id);
      if (!usage) continue;
      if (usage->in_optimizer) {
        held.insert(id);
        held_used = held_used || usage->used;
      } else if (usage->used) {
        left_out.insert(id);
      }
    }
  }
  // Parameters that are trained on purpose by nobody are common; an optimizer that trains nothing
  // is not.
  if (left_out.empty() || held_used) return std::vector<Finding>{};
  Finding finding = finding_of(kOptimizerStale);
  finding.where = where(timeline, "step");
  finding.ranks = all_ranks(timeline);
  finding.first_step = steps.front()->number;
  finding.parameters = parameters_of(timeline, left_out);
  finding.evidence["parameters_left_out"] = left_out.size();
  finding.evidence["parameters_held"] = held.size();
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "The optimizer does not hold the live parameters: gradients arrive at {}, and none at what "
      "it "
      "holds. No weight of the model moves in {}.",
      list_of(finding.parameters), count_of(steps.size(), "step"));
  finding.prescription = {
      "Make the optimizer after the model is complete, moved and wrapped, from model.parameters() "
      "of "
      "the very model that is trained.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kOptimizerStale = {"DDP307", "optimizer-stale-parameters", Severity::kError,
                              "the optimizer does not hold the live parameters",
                              check_optimizer_stale};

}  // namespace ddp_doctor
