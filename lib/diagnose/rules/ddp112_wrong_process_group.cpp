// SPDX-License-Identifier: BSD-3-Clause
// DDP112: gradients agree inside subgroups of the ranks but differ between them.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

using Groups = std::vector<std::vector<int>>;

// The partition of the ranks that all differing gradients share, with at least two ranks in each
// part; empty if there is none.
Groups shared_partition(const Timeline& timeline, const TimelineStep& step) {
  Groups shared;
  for (int id : differing(timeline, step, Stage::kGradient)) {
    const auto groups = step.groups(id, Stage::kGradient);
    if (std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.size() < 2; }))
      return {};
    if (!local_gradients_differ(timeline, step, id)) continue;
    if (!shared.empty() && groups != shared) return {};
    shared = groups;
  }
  return shared.size() > 1 ? shared : Groups{};
}

std::string text_of(const Groups& groups) {
  std::string text;
  for (const auto& group : groups) {
    std::string ranks;
    for (int rank : group) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    text += (text.empty() ? "[" : ", [") + ranks + "]";
  }
  return text;
}

Verdict check_wrong_process_group(const Timeline& timeline) {
  if (timeline.ranks().size() < 4)
    return std::vector<Finding>{};  // two subgroups of two ranks at least
  const auto steps = complete_steps(timeline);
  if (averages_weights(timeline)) return Undecidable{kAveragesWeights};
  const TimelineStep* first = nullptr;
  std::size_t affected = 0;
  for (const auto* step : steps) {
    if (shared_partition(timeline, *step).empty()) continue;
    ++affected;
    if (first == nullptr) first = step;
  }
  if (first == nullptr) return std::vector<Finding>{};
  // Groups with different initial weights are different models, not replicas.
  if (const auto* start = timeline.step(0);
      start != nullptr && start->complete() && !differing(timeline, *start, Stage::kWeight).empty())
    return std::vector<Finding>{};
  const Groups groups = shared_partition(timeline, *first);
  Finding finding = finding_of(kWrongProcessGroup);
  finding.where = where(timeline, timeline.has_wrapper() ? "wrap" : "step");
  if (const auto calls = calls_before_step(*first, first->first_rank()); !calls.empty())
    finding.where = Where{calls.front()->file, calls.front()->line};
  finding.ranks = timeline.ranks();
  finding.first_step = first->number;
  finding.evidence["groups"] = groups;
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Gradients are equal inside the groups {} and differ between them, in {} of {}, although all "
      "ranks started with the same weights: gradients are averaged over only some of the replicas.",
      text_of(groups), affected, count_of(steps.size(), "step"));
  finding.prescription = {
      "Pass the process group of all ranks that hold the same weights to DistributedDataParallel "
      "(or to the all-reduce).",
      "ddp",
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kWrongProcessGroup = {
    .code = "DDP112",
    .name = "wrong-process-group",
    .severity = Severity::kError,
    .headline = "gradients agree inside subgroups, not across all replicas",
    .check = check_wrong_process_group,
    .needs = {.steps = 1},
    .on_mesh = OnMesh::kNotChecked,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
