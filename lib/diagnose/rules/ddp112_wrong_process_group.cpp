// SPDX-License-Identifier: BSD-3-Clause
// DDP112: gradients agree inside subgroups of the ranks but differ between them.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/replica_sets.h"

namespace ddp_doctor {
namespace {

using Groups = std::vector<std::vector<int>>;

// The partition of the ranks that all differing gradients share; empty if there is none. A part of
// one rank shows nothing, unless it is a wrapper's process group.
Groups shared_partition(const Timeline& timeline, const TimelineStep& step,
                        const Groups& declared) {
  Groups shared;
  for (int id : differing(timeline, step, Stage::kGradient)) {
    const auto groups = step.groups(id, Stage::kGradient);
    if (groups != declared &&
        std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.size() < 2; }))
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

bool samples_differ(const TimelineStep& step, int id, Stage stage) {
  const auto first = step.sample(step.first_rank(), id, stage);
  return first && std::any_of(step.here->begin(), step.here->end(), [&](int rank) {
           const auto own = step.sample(rank, id, stage);
           return own && !(own->values == first->values);
         });
}

// Of which the ranks hold different parts, such as experts: their own gradients differ, and what
// the optimizers got is equal on all ranks. Only a reduction makes it so.
bool reduced_over_parts(const Timeline& timeline, const TimelineStep& step, int id) {
  const auto got = step.groups(id, Stage::kGradient, timeline.ranks());
  const auto seen = step.find(step.first_rank(), id, Stage::kGradient);
  return got.size() == 1 && got.front().size() == step.expected() && seen && seen->max_abs > 0.0 &&
         step.groups(id, Stage::kWeight, timeline.ranks()).size() > 1 &&
         samples_differ(step, id, Stage::kLocalGradient);
}

std::vector<Finding> over_parts(const Timeline& timeline,
                                const std::vector<const TimelineStep*>& steps) {
  std::set<int> parameters;
  Finding finding = finding_of(kWrongProcessGroup);
  std::size_t affected = 0;
  for (const auto* step : steps) {
    bool any = false;
    for (const auto& [id, of] : timeline.placed().of) {
      if (of.gradient.size() < 2 || !reduced_over_parts(timeline, *step, id)) continue;
      parameters.insert(id);
      any = true;
    }
    affected += any ? 1 : 0;
    if (any && !finding.first_step) finding.first_step = step->number;
  }
  if (affected < 2 || 2 * affected <= steps.size()) return {};
  finding.certainty = Certainty::kLikely;
  finding.where = where_stepped(timeline, finding.first_step);
  const auto* first = timeline.step(*finding.first_step);
  if (const auto calls = calls_before_step(*first, first->first_rank()); !calls.empty())
    finding.where = Where{calls.front()->file, calls.front()->line};
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["kind"] = "over-parts";
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "The ranks hold different parts of {}, and their own gradients differ, but at optimizer.step "
      "all have the same gradient, in {} of {}: it was reduced over ranks that hold different "
      "parts.",
      list_of(finding.parameters), affected, count_of(steps.size(), "step"));
  finding.prescription = {
      "Reduce the gradients of parts, such as experts or the layers of tensor parallelism, only "
      "over the ranks that hold the same part, and not at all where a single rank holds it.",
      ""};
  return {finding};
}

Verdict check_wrong_process_group(const Timeline& timeline) {
  if (auto parts = over_parts(timeline, complete_steps(timeline)); !parts.empty()) return parts;
  const Groups declared = wrapper_groups(timeline);
  const auto steps = complete_steps(timeline);
  if (const char* reason = why_apart(timeline)) return Undecidable{reason};
  const TimelineStep* first = nullptr;
  std::size_t affected = 0;
  for (const auto* step : steps) {
    if (shared_partition(timeline, *step, declared).empty()) continue;
    ++affected;
    if (first == nullptr) first = step;
  }
  if (first == nullptr) return std::vector<Finding>{};
  // Groups with different initial weights are different models, not replicas.
  if (const auto* start = timeline.step(0);
      start != nullptr && start->complete() && !differing(timeline, *start, Stage::kWeight).empty())
    return std::vector<Finding>{};
  const Groups groups = shared_partition(timeline, *first, declared);
  Finding finding = finding_of(kWrongProcessGroup);
  finding.where = where(timeline, timeline.has_wrapper() ? "wrap" : "step");
  if (const auto calls = calls_before_step(*first, first->first_rank()); !calls.empty())
    finding.where = Where{calls.front()->file, calls.front()->line};
  finding.ranks = timeline.ranks();
  finding.first_step = first->number;
  finding.evidence["groups"] = groups;
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  const bool alone = std::all_of(groups.begin(), groups.end(),
                                 [](const auto& group) { return group.size() == 1; });
  finding.message = fmt::format(
      "{}, in {} of {}, although all ranks started with the same weights: {}.",
      alone ? "Gradients differ between all ranks"
            : fmt::format("Gradients are equal inside the groups {} and differ between them",
                          text_of(groups)),
      affected, count_of(steps.size(), "step"),
      alone ? "the wrapper's process group has one rank, so nothing is averaged"
            : "gradients are averaged over only some of the replicas");
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
    .holds_on_mesh = "over-parts",
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
