// SPDX-License-Identifier: BSD-3-Clause
// DDP113: gradients are synchronized more often than the optimizer needs.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// With other optimizers in between, or a closure that the optimizer calls again, several
// reductions are expected.
bool of_one_optimizer(const StepRecord& step) {
  const auto actions = actions_of(step.trace);
  return std::none_of(actions.begin(), actions.end(), [](const auto& action) {
    return action.first == "L" || action.first.starts_with('S');
  });
}

std::size_t reductions(const StepRecord& step, int wrapper) {
  std::size_t count = 0;
  for (const auto& pass : backwards_of(step.trace, wrapper)) count += pass.reduced ? 1 : 0;
  return count;
}

// It reduces the gradient of a parameter that no wrapper covers, so no reducer has reduced it.
bool of_uncovered(const Timeline& timeline, const Collective& call) {
  constexpr std::string_view kGradientOf = "gradient of ";
  return call.target.starts_with(kGradientOf) &&
         std::ranges::any_of(timeline.tensors, [&](const TensorInfo& tensor) {
           return !tensor.ddp_index &&
                  tensor.name == std::string_view(call.target).substr(kGradientOf.size());
         });
}

// The hand-written collective that reduces gradients that the reducer has already made equal; null
// if there is none.
const Collective* reduced_again(const Timeline& timeline, const TimelineStep& step) {
  const auto calls = calls_before_step(step, 0);
  const auto call = std::find_if(calls.begin(), calls.end(), [&](const auto* call) {
    return call->op == "all_reduce" && call->target.starts_with("gradient") &&
           !of_uncovered(timeline, *call);
  });
  if (call == calls.end()) return nullptr;
  bool any = false;
  for (int id : timeline.trainable()) {
    const auto before = step.groups(id, Stage::kCollectiveGradient);
    if (!step.find(step.first_rank(), id, Stage::kLocalGradient)) continue;
    if (before.size() != 1 || before.front().size() != step.expected()) return nullptr;
    any = any || local_gradients_differ(timeline, step, id);
  }
  return any ? *call : nullptr;
}

// What no wrapper covers, and the hand-written collective reduces as well.
std::vector<FindingParameter> reduced_by_hand_alone(const Timeline& timeline,
                                                    const std::vector<const TimelineStep*>& steps) {
  std::set<int> ids;
  for (int id : timeline.trainable()) {
    if (timeline.tensors[static_cast<std::size_t>(id)].ddp_index) continue;
    if (std::ranges::any_of(steps, [&](const TimelineStep* step) {
          return !step->groups(id, Stage::kCollectiveGradient).empty();
        }))
      ids.insert(id);
  }
  return parameters_of(timeline, ids);
}

Prescription remove_the_call(const std::vector<FindingParameter>& by_hand_alone) {
  if (by_hand_alone.empty()) return {"Remove the hand-written all-reduce.", ""};
  return {fmt::format("Limit the hand-written all-reduce to what no wrapper covers ({}).",
                      list_of(by_hand_alone)),
          ""};
}

Verdict check_redundant_sync(const Timeline& timeline) {
  if (!timeline.wrapper) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kRedundantSync);
  std::size_t max_reductions = 0;
  std::size_t affected = 0;
  std::size_t judged = 0;
  const Collective* again = nullptr;
  for (const auto* step : steps) {
    const bool alone = of_one_optimizer(*step->first());
    const std::size_t here = alone ? reductions(*step->first(), *timeline.wrapper) : 0;
    const Collective* call = reduced_again(timeline, *step);
    judged += alone || call != nullptr ? 1 : 0;
    if (here < 2 && call == nullptr) continue;
    max_reductions = std::max(max_reductions, here);
    if (again == nullptr) again = call;
    ++affected;
    if (!finding.first_step) finding.first_step = step->number;
  }
  if (affected == 0) return std::vector<Finding>{};
  finding.where = where(timeline, "backward");
  if (again != nullptr) finding.where = Where{again->file, again->line};
  finding.ranks = timeline.ranks();
  finding.evidence["reductions_per_step"] = max_reductions;
  finding.evidence["reduced_again_by_hand"] = again != nullptr;
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = judged;
  finding.message = again != nullptr
                        ? fmt::format(
                              "In {} of {} a hand-written all-reduce averages gradients that "
                              "DistributedDataParallel has already averaged.",
                              affected, count_of(judged, "step"))
                        : fmt::format(
                              "Gradients are reduced {} times per optimizer step, in {} of {}; "
                              "once, after the last micro-batch, is enough.",
                              max_reductions, affected, count_of(judged, "step"));
  finding.prescription =
      again != nullptr
          ? remove_the_call(reduced_by_hand_alone(timeline, steps))
          : Prescription{
                "Run every micro-batch except the last under no_sync, both forward and "
                "backward: the forward decides whether its backward is reduced.",
                ""};
  return std::vector{finding};
}

}  // namespace

const Rule kRedundantSync = {.code = "DDP113",
                             .name = "redundant-sync",
                             .severity = Severity::kAdvice,
                             .headline = "gradients are synchronized more often than needed",
                             .check = check_redundant_sync,
                             .scope = Scope::kWrapper,
                             .needs = {.ranks = 2, .steps = 1, .all_ranks = true}};

}  // namespace ddp_doctor
