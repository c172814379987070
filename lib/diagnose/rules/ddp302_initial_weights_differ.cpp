// SPDX-License-Identifier: BSD-3-Clause
// DDP302: replicas differ before the first optimizer step.

#include <fmt/format.h>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict check_initial_weights_differ(const Timeline& timeline) {
  if (all_ranks(timeline).size() < 2)
    return Undecidable{"there is only one rank, nothing to compare"};
  const auto* start = timeline.step(0);
  if (start == nullptr || !start->complete())
    return Undecidable{"the weights before step 1 were not recorded on every rank"};

  std::vector<int> ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && !timeline.rank_local.contains(tensor.id) &&
        start->groups(tensor.id, Stage::kWeight).size() > 1)
      ids.push_back(tensor.id);
  }
  if (ids.empty()) return std::vector<Finding>{};
  Finding finding = finding_of(kInitialWeightsDiffer);
  finding.where = where(timeline, "step");
  finding.ranks = all_ranks(timeline);
  finding.first_step = 1;
  finding.parameters = parameters_of(timeline, ids);
  finding.evidence["parameters_apart"] = ids.size();
  std::string size;
  if (start->weight_drift) {
    finding.evidence["max_abs_difference"] = *start->weight_drift;
    size = fmt::format(" (max |W_i - W_j| = {:.3e})", *start->weight_drift);
  }
  finding.message = fmt::format(
      "Before the first step the weights of {} differ across ranks{}: averaging gradients cannot "
      "make them equal.",
      list_of(finding.parameters), size);
  finding.prescription = {
      "Broadcast all weights and buffers from rank 0 before the first step "
      "(DistributedDataParallel does this), or use the same seed on every rank before the model is "
      "constructed.",
      "ddp",
      {},
      {"broadcast-init"}};
  return std::vector{finding};
}

}  // namespace

const Rule kInitialWeightsDiffer = {"DDP302", "initial-weights-differ", Severity::kError,
                                    "replicas differ before the first step",
                                    check_initial_weights_differ};

}  // namespace ddp_doctor
