// SPDX-License-Identifier: BSD-3-Clause
// DDP208: parameters without a gradient, or with a gradient of zeros, that the optimizer still
// changes: momentum, weight decay.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// optimizer.step() did not change it: something else did, such as an average of weights.
bool still_in_step(const TimelineStep& step, int tensor) {
  const auto before = step.sample(step.first_rank(), tensor, Stage::kWeightBefore);
  const auto after = step.sample(step.first_rank(), tensor, Stage::kWeight);
  return before && after && before->values == after->values;
}

bool has_gradient(const TimelineStep& step, int tensor) {
  const auto gradient = step.find(step.first_rank(), tensor, Stage::kGradient);
  return gradient && (gradient->max_abs > 0.0 || gradient->nonfinite > 0);
}

// Parameters whose gradient is present and zero in every step (`0.0 * output.sum()`).
std::set<int> idle(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  std::set<int> ids;
  for (int id : timeline.trainable()) ids.insert(id);
  for (const auto* step : steps) {
    if (ids.empty()) break;
    std::erase_if(ids, [&](int id) {
      const auto gradient = step->find(step->first_rank(), id, Stage::kGradient);
      return !gradient || gradient->numel == 0 || gradient->max_abs > 0.0 ||
             gradient->nonfinite > 0;
    });
  }
  return ids;
}

Verdict check_unused_but_updated(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kUnusedButUpdated);
  const std::set<int> zeros = idle(timeline, steps);
  std::set<int> moved;
  std::size_t times = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const auto& before = *steps[i - 1];
    const auto& now = *steps[i];
    if (now.number != before.number + 1) continue;
    bool here = false;
    std::set<int> without = unused_on_every_rank(timeline, now);
    without.insert(zeros.begin(), zeros.end());
    for (int id : without) {
      const auto usage = now.usage(now.first_rank(), id);
      const auto was = before.find(before.first_rank(), id, Stage::kWeight);
      const auto is = now.find(now.first_rank(), id, Stage::kWeight);
      if (!usage || !usage->in_optimizer || !was || !is || was->bits == is->bits ||
          has_gradient(now, id) || still_in_step(now, id))
        continue;
      moved.insert(id);
      here = true;
      if (!finding.first_step) finding.first_step = now.number;
    }
    times += here ? 1 : 0;
  }
  if (moved.empty()) return std::vector<Finding>{};
  finding.where = where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, moved);
  finding.evidence["steps_moved"] = times;
  finding.evidence["steps_seen"] = steps.size();
  const bool on_zeros =
      std::any_of(moved.begin(), moved.end(), [&](int id) { return zeros.contains(id); });
  finding.evidence["zero_gradients"] = on_zeros;
  finding.message = fmt::format(
      "{} got {} in {}, yet the optimizer changed {}: momentum and weight decay also apply to a "
      "gradient of zeros.",
      list_of(finding.parameters), on_zeros ? "only zero gradients" : "no gradient",
      count_of(times, "step"), moved.size() == 1 ? "it" : "them");
  finding.prescription = {on_zeros ? "Freeze them before wrapping (requires_grad_(False)), or keep "
                                     "them out of the optimizer: multiplying a loss by 0 satisfies "
                                     "DistributedDataParallel but does not stop weight decay."
                                   : "Use optimizer.zero_grad(set_to_none=True), so that the "
                                     "optimizer skips unused parameters, or freeze them.",
                          ""};
  return std::vector{finding};
}

}  // namespace

const Rule kUnusedButUpdated = {.code = "DDP208",
                                .name = "unused-but-updated",
                                .severity = Severity::kAdvice,
                                .headline = "a parameter without a gradient is still updated",
                                .check = check_unused_but_updated,
                                .scope = Scope::kModel,
                                .needs = {.steps = 2, .all_ranks = true}};

}  // namespace ddp_doctor
