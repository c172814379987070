// SPDX-License-Identifier: BSD-3-Clause
// DDP102: the optimizer's gradients are not bit-identical on every rank.

#include <fmt/format.h>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict check_gradients_out_of_sync(const Timeline& timeline) {
  if (all_ranks(timeline).size() < 2)
    return Undecidable{"there is only one rank, nothing to compare"};
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{"no step was completed by every rank"};
  if (averages_weights(timeline)) return Undecidable{kAveragesWeights};

  Finding finding = finding_of(kGradientsOutOfSync);
  finding.where = where(timeline, "step");
  std::set<int> parameters;
  std::size_t apart = 0;
  bool collectives = false;
  for (const auto* step : steps) {
    for (const auto* record : step->records()) collectives = collectives || record->collectives > 0;
    const auto ids = differing(timeline, *step, Stage::kGradient);
    if (ids.empty()) continue;
    ++apart;
    parameters.insert(ids.begin(), ids.end());
    if (!finding.first_step) finding.first_step = step->number;
  }
  if (apart == 0) return std::vector<Finding>{};
  const bool all = parameters.size() == timeline.trainable().size();
  finding.ranks = all_ranks(timeline);
  if (!all) finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["steps_apart"] = apart;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["parameters_apart"] = parameters.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.message = fmt::format(
      "At optimizer.step the gradient of {} differs across ranks, in {} of {}.",
      all ? "every parameter" : list_of(finding.parameters), apart, count_of(steps.size(), "step"));
  finding.prescription = {
      "Average the gradients over all ranks after the last backward of each step: let "
      "DistributedDataParallel do it, or all-reduce every parameter's gradient, with zeros on "
      "ranks that have none.",
      collectives ? "allreduce-flat" : "ddp",
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kGradientsOutOfSync = {"DDP102", "gradients-out-of-sync", Severity::kError,
                                  "gradients differ across ranks at optimizer.step",
                                  check_gradients_out_of_sync};

}  // namespace ddp_doctor
