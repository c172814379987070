// SPDX-License-Identifier: BSD-3-Clause
// DDP105: the model's parameters are no longer the ones that the reducer hooked.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"

namespace ddp_doctor {
namespace {

// The reducer waited for gradients that never came.
bool was_waited_for(const Timeline& timeline) {
  return std::any_of(timeline.ranks().begin(), timeline.ranks().end(), [&](int rank) {
    const Event* error = timeline.error(rank);
    return error != nullptr && error_kind(error->text) == "unfinished-reduction";
  });
}

Verdict check_parameters_replaced(const Timeline& timeline) {
  if (!timeline.wrapper) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kParametersReplaced);
  std::set<int> replaced;
  bool harm = false, left_out = false;
  for (const auto* step : steps) {
    for (int rank : step->distinct_users()) {
      for (int id : timeline.trainable()) {
        const auto usage = step->usage(rank, id);
        if (!usage || !usage->replaced) continue;
        replaced.insert(id);
        // No optimizer holds the new one, so its gradient was not recorded.
        left_out = left_out || (usage->used && !usage->in_optimizer);
        if (!finding.first_step) finding.first_step = step->number;
      }
    }
    harm = harm || (!replaced.empty() && !differing(timeline, *step, Stage::kGradient).empty());
  }
  harm = harm || (!replaced.empty() && was_waited_for(timeline));
  if (!harm && !left_out) return std::vector<Finding>{};
  if (!harm) finding.certainty = Certainty::kLikely;
  finding.where = where(timeline, "wrap");
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, replaced);
  finding.evidence["parameters_replaced"] = replaced.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.message = fmt::format(
      "{} {} replaced after DistributedDataParallel was constructed (moved, cast, re-assigned or "
      "parametrized). "
      "The reducer waits for the original parameters, and the gradients of the new ones stay "
      "local.",
      list_of(finding.parameters), replaced.size() == 1 ? "was" : "were");
  finding.prescription = {
      "Move, cast or replace parameters before DistributedDataParallel(model), or wrap the model "
      "again afterwards. To load values, use load_state_dict without assign=True, or "
      "parameter.data.copy_(). Otherwise average the gradients over all ranks before each "
      "optimizer step.",
      "allreduce-flat"};
  return std::vector{finding};
}

}  // namespace

const Rule kParametersReplaced = {
    .code = "DDP105",
    .name = "parameters-replaced-after-wrap",
    .severity = Severity::kError,
    .headline = "the model's parameters are not the ones that the reducer hooked",
    .check = check_parameters_replaced,
    .scope = Scope::kWrapper,
    .needs = {.steps = 1},
    .lasting = true,
    .on_mesh = OnMesh::kHolds,
    // The reducer waits for parameters that no longer exist, and never finishes.
    .explains = {{&kGradientsOutOfSync},
                 {&kPartialSync},
                 {&kParametersOutside},
                 {&kUnusedParameters},
                 {&kRankDependentGraph},
                 {&kWeightsDrift},
                 {&kUpdateOutsideOptimizer, "replaced"},
                 {&kInitialWeightsDiffer, "after-wrapping"},
                 {&kInitialWeightsDiffer, "late"},
                 {&kOptimizerStale},
                 {&kRankCrashed, "unfinished-reduction"}}};

}  // namespace ddp_doctor
