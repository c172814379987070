// SPDX-License-Identifier: BSD-3-Clause
// DDP307: parameters that no optimizer holds get gradients, while the parameters that the optimizer
// holds get none.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/rank_local.h"

namespace ddp_doctor {
namespace {

// How many of the parameters that optimizers hold are on the meta device: those from before the
// model got its storage.
std::size_t held_without_storage(const Timeline& timeline) {
  std::size_t count = 0;
  const auto* record = timeline.record(timeline.first_rank());
  for (const auto& fact : record->facts) {
    if (fact.key == "without_storage") count += std::stoul(fact.value);
  }
  return count;
}

// How many parameters of a module they hold that do not require gradients, and got none: frozen
// after the optimizer was made, as the base of an adapter is. 0 if they hold anything else, such as
// copies of the weights.
std::size_t held_frozen(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  const int rank = timeline.first_rank();
  std::set<int> frozen;
  for (const auto& fact : timeline.record(rank)->facts) {
    if (!fact.is("optimizer", "tensors")) continue;
    for (const int id : nlohmann::json::parse(fact.value).get<std::vector<int>>()) {
      const auto at = static_cast<std::size_t>(id);
      if (at >= timeline.tensors.size()) continue;
      const bool has_gradient = std::ranges::any_of(steps, [&](const TimelineStep* step) {
        return step->find(rank, id, Stage::kGradient).has_value();
      });
      const auto& tensor = timeline.tensors[at];
      if (tensor.trainable || is_in_no_module(tensor) || has_gradient) return 0;
      frozen.insert(id);
    }
  }
  return frozen.size();
}

Verdict check_optimizer_stale(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  std::set<int> left_out;  // used, but in no optimizer
  std::set<int> held, used;
  for (const auto* step : steps) {
    for (int id : timeline.trainable()) {
      const auto usage = step->usage(step->first_rank(), id);
      if (!usage) continue;
      if (usage->in_optimizer) {
        held.insert(id);
        // A gradient may also be assigned, as to copies of the weights in another precision.
        const auto gradient = step->find(step->first_rank(), id, Stage::kGradient);
        const bool trained = gradient && (gradient->max_abs > 0.0 || gradient->nonfinite > 0);
        if (usage->used || trained) used.insert(id);
      } else if (usage->used) {
        left_out.insert(id);
      }
    }
  }
  // Parameters left out of every optimizer on purpose are common. An optimizer that trains nothing
  // is not, nor is one that holds parameters that are no longer in any model.
  std::set<int> stale;
  for (const int id : held) {
    if (!used.contains(id) &&
        (used.empty() || is_in_no_module(timeline.tensors[static_cast<std::size_t>(id)])))
      stale.insert(id);
  }
  const std::size_t untrainable =
      held.empty() ? held_without_storage(timeline) + held_frozen(timeline, steps) : 0;
  if (left_out.empty() || (stale.empty() && untrainable == 0)) return std::vector<Finding>{};
  Finding finding = finding_of(kOptimizerStale);
  finding.ranks = timeline.ranks();
  finding.first_step = steps.front()->number;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.parameters = parameters_of(timeline, left_out);
  finding.evidence["parameters_left_out"] = left_out.size();
  finding.evidence["parameters_held"] = held.size() + untrainable;
  finding.evidence["parameters_stale"] = stale.size() + untrainable;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "The optimizer does not hold the model's current parameters: in {} {} got gradients and "
      "{} in no optimizer, while {} got none.",
      count_of(steps.size(), "step"), list_of(finding.parameters),
      left_out.size() == 1 ? "is" : "are",
      used.empty() ? "the parameters that the optimizer holds"
                   : count_of(stale.size(), "tensor") + " that only the optimizer holds");
  finding.prescription = {
      "Construct the optimizer from the model.parameters() of the model that is trained, after the "
      "model is complete, moved and wrapped.",
      timeline.layout.placements.empty() ? "" : "rebuild-optimizer"};
  return std::vector{finding};
}

}  // namespace

const Rule kOptimizerStale = {
    .code = "DDP307",
    .name = "optimizer-stale-parameters",
    .severity = Severity::kError,
    .headline = "the optimizer does not hold the model's current parameters",
    .check = check_optimizer_stale,
    .needs = {.steps = 1},
    .on_mesh = OnMesh::kHolds,
    // The optimizer's own copies of the weights are trained nowhere.
    .explains = {{&kNotReducedOverDimension},
                 {&kInitialWeightsDiffer, "untrained"},
                 {&kUnusedParameters},
                 {&kUnusedButUpdated}}};

}  // namespace ddp_doctor
