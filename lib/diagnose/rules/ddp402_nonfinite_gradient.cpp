// SPDX-License-Identifier: BSD-3-Clause
// DDP402: NaN or Inf in a gradient: the rank, parameter and step where it first appeared, before
// the reduction spread it to every rank.
//
// A gradient scaler expects infinite gradients and skips those steps: only NaN or Inf that reached
// the weights is reported.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

struct Origin {
  std::vector<int> ranks;
  std::set<int> parameters;
  std::int64_t elements = 0;
};

Origin nonfinite(const Timeline& timeline, const TimelineStep& step, Stage stage) {
  Origin origin;
  for (int rank : timeline.ranks()) {
    bool here = false;
    for (int id : timeline.trainable()) {
      const auto seen = step.find(rank, id, stage);
      if (!seen || seen->nonfinite == 0) continue;
      here = true;
      origin.parameters.insert(id);
      origin.elements += seen->nonfinite;
    }
    if (here) origin.ranks.push_back(rank);
  }
  return origin;
}

// As a gradient scaler does: its gradients moved nothing.
bool was_skipped(const Timeline& timeline, const TimelineStep& step) {
  const auto& ranks = timeline.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    const auto* row = step.at(rank);
    return row != nullptr && row->skipped;
  });
}

Verdict check_nonfinite_gradient(const Timeline& timeline) {
  const auto has_gradients = [](const TimelineStep& step) { return step.number > 0; };
  if (std::none_of(timeline.steps.begin(), timeline.steps.end(), has_gradients))
    return Undecidable{"no step was recorded"};
  const bool reached_weights =
      std::any_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
        return step.number > 0 && !nonfinite(timeline, step, Stage::kWeight).ranks.empty();
      });
  if (!reached_weights) return std::vector<Finding>{};

  for (const auto& step : timeline.steps) {
    if (step.number == 0 || was_skipped(timeline, step)) continue;
    Origin origin = nonfinite(timeline, step, Stage::kLocalGradient);
    const bool local = !origin.ranks.empty();
    if (!local) origin = nonfinite(timeline, step, Stage::kGradient);
    if (origin.ranks.empty()) continue;

    Finding finding = finding_of(kNonfiniteGradient);
    finding.where = where(timeline, "backward");
    finding.ranks = origin.ranks;
    finding.first_step = step.number;
    finding.parameters = parameters_of(timeline, origin.parameters);
    finding.evidence["nonfinite_elements"] = origin.elements;
    finding.evidence["before_reduction"] = local;
    finding.message = fmt::format(
        "The {} of {} had NaN or Inf in step {} on {}{}, and it reached the weights.",
        local ? "local gradient" : "synchronized gradient", list_of(finding.parameters),
        step.number, ranks_of(origin.ranks),
        local && origin.ranks.size() < step.expected() ? "; averaging spread it to every rank"
                                                       : "");
    finding.prescription.text =
        "Check this rank's batch and loss in that step (empty batch, division by zero, log of "
        "zero, overflow in half precision); torch.autograd.set_detect_anomaly(True) names the "
        "operation.";
    if (step.number == 1)
      finding.prescription.text +=
          " As it is the first step, check the initial weights, too: after to_empty() a module "
          "that "
          "nobody initializes holds what was in memory.";
    return std::vector{finding};
  }
  return std::vector<Finding>{};
}

}  // namespace

const Rule kNonfiniteGradient = {.code = "DDP402",
                                 .name = "nonfinite-gradient",
                                 .severity = Severity::kError,
                                 .headline = "NaN or Inf in a gradient reached the weights",
                                 .check = check_nonfinite_gradient,
                                 .lasting = true,
                                 .on_mesh = OnMesh::kHolds};

}  // namespace ddp_doctor
