// SPDX-License-Identifier: BSD-3-Clause
// DDP403: the gradient scaler's scale, or its decision to skip a step, differs across ranks.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict check_loss_scale_differs(const Timeline& timeline) {
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || !step.complete()) continue;
    const auto& first = *step.first();
    const auto records = step.records();
    const bool scales = std::any_of(records.begin(), records.end(), [&](const auto* rank) {
      return rank->scale && first.scale && *rank->scale != *first.scale;
    });
    const bool skips = std::any_of(records.begin(), records.end(), [&](const auto* rank) {
      return rank->skipped != first.skipped;
    });
    if (!scales && !skips) continue;
    Finding finding = finding_of(kLossScaleDiffers);
    finding.where = where(timeline, "scaler");
    finding.ranks = timeline.ranks();
    finding.first_step = step.number;
    std::string values;
    for (const auto* rank : records) {
      finding.evidence["scale_by_rank"].push_back(rank->scale.value_or(0.0));
      finding.evidence["skipped_by_rank"].push_back(rank->skipped);
      values += fmt::format("{}{:g}{}", values.empty() ? "" : ", ", rank->scale.value_or(0.0),
                            rank->skipped ? " (skipped)" : "");
    }
    finding.message = fmt::format(
        "In step {} {}, and the replicas diverge. Scale by rank: {}.", step.number,
        scales ? "the ranks' gradient scalers divide the averaged gradients by different scales"
               : "the gradient scalers of some ranks skipped optimizer.step(), and others did not",
        values);
    finding.prescription = {
        "Load the scaler's state on every rank, and run the same number of steps with it on every "
        "rank. If the scaler checks gradients before they are averaged, all-reduce found_inf.",
        ""};
    return std::vector{finding};
  }
  return std::vector<Finding>{};
}

}  // namespace

const Rule kLossScaleDiffers = {.code = "DDP403",
                                .name = "loss-scale-differs",
                                .severity = Severity::kError,
                                .headline = "the gradient scaler's scale or decision differs",
                                .check = check_loss_scale_differs,
                                .needs = {.ranks = 2},
                                .lasting = true,
                                .on_mesh = OnMesh::kHolds,
                                // The ranks that did not skip the step put Inf into their weights.
                                .explains = {{&kGradientsOutOfSync},
                                             {&kWeightsDrift},
                                             {&kOptimizerDiffers},
                                             {&kClipBeforeSync},
                                             {&kNonfiniteGradient}}};

}  // namespace ddp_doctor
