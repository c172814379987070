// SPDX-License-Identifier: BSD-3-Clause
// DDP207: find_unused_parameters=True with an unused set that never changes, the same on every
// rank.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// static_graph fails if the loss does not use an output of forward (pytorch#97030), and with
// no_sync in newer versions.
bool static_graph_would_fail(const TimelineStep& step, int rank, const std::set<int>& unused) {
  if (step.at(rank)->unsynchronized_backwards > 0) return true;
  return std::any_of(unused.begin(), unused.end(),
                     [&](int id) { return step.usage(rank, id)->in_output.value_or(false); });
}

Verdict check_static_graph_applicable(const Timeline& timeline) {
  if (!timeline.has_wrapper() || !timeline.flag("find_unused_parameters") ||
      timeline.flag("static_graph")) {
    return std::vector<Finding>{};
  }
  // PyTorch advises against static_graph with reentrant checkpoints.
  if (checkpoints_reentrantly(timeline)) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  // The steps of each optimizer cover only its own parameters.
  if (std::any_of(steps.begin(), steps.end(), [&](const auto* step) {
        return step->first()->optimizer != steps.front()->first()->optimizer;
      }))
    return std::vector<Finding>{};
  const auto constant = unused(timeline, *steps.front(), 0);
  for (const auto* step : steps) {
    for (int rank : timeline.ranks()) {
      if (unused(timeline, *step, rank) != constant) return std::vector<Finding>{};
      if (static_graph_would_fail(*step, rank, constant)) return std::vector<Finding>{};
    }
  }
  // DDP204 reports that nothing is unused: then plain DistributedDataParallel is enough.
  if (constant.empty()) return std::vector<Finding>{};

  Finding finding = finding_of(kStaticGraphApplicable);
  finding.where = where(timeline, "wrap");
  finding.certainty = Certainty::kLikely;  // later steps may differ
  finding.ranks = timeline.ranks();
  finding.first_step = steps.front()->number;
  finding.parameters = parameters_of(timeline, constant);
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["parameters_unused"] = constant.size();
  finding.message =
      fmt::format("The set of unused parameters ({}) was the same on every rank in the {} seen.",
                  list_of(finding.parameters), count_of(steps.size(), "step"));
  finding.prescription = {
      "If no later step takes another path and no_sync is not used, replace "
      "find_unused_parameters=True with static_graph=True, which avoids the cost in every step.",
      "ddp-static-graph"};
  return std::vector{finding};
}

}  // namespace

const Rule kStaticGraphApplicable = {
    .code = "DDP207",
    .name = "static-graph-applicable",
    .severity = Severity::kAdvice,
    .headline = "the unused set never changes: static_graph=True is enough",
    .check = check_static_graph_applicable,
    .scope = Scope::kWrapper,
    .needs = {.steps = 2, .all_ranks = true},
    .on_mesh = OnMesh::kHolds};

}  // namespace ddp_doctor
