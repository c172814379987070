// SPDX-License-Identifier: BSD-3-Clause
// DDP301: weights differ across ranks after an optimizer step.

#include <fmt/format.h>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// Some ranks made an optimizer step where others made none: from there on, steps of the same number
// belong to different batches.
Finding steps_apart(const Timeline& timeline) {
  const Unpaired& unpaired = *timeline.unpaired;
  Finding finding = finding_of(kWeightsDrift);
  finding.first_step = unpaired.step;
  finding.where = where_stepped(timeline, finding.first_step);
  std::map<std::int64_t, std::vector<int>> by_count;
  for (const auto& [rank, count] : unpaired.reductions) by_count[count].push_back(rank);
  const auto& early = by_count.begin()->second;  // the reductions of a step that others made later
  const bool fewer = early.size() < timeline.ranks().size() - early.size();
  finding.ranks = fewer ? early : timeline.ranks();
  finding.evidence["kind"] = "steps-apart";
  for (const auto& [rank, count] : unpaired.reductions)
    finding.evidence["reductions_before"][std::to_string(rank)] = count;
  finding.message = fmt::format(
      "The ranks do not make the same optimizer steps: {}. From there on they update their weights "
      "after different batches; later steps were not compared.",
      unpaired.in_words());
  finding.prescription = {
      "Call optimizer.step() on every rank after the same backward passes: its condition, such as "
      "the last step of an accumulation, must not depend on the rank.",
      ""};
  return finding;
}

// Ranks on which no update ever reached these parameters: after the last step they are what they
// were before the first. Nothing if that is all ranks.
std::vector<int> never_updated(const Timeline& timeline, const TimelineStep& last,
                               const std::set<int>& ids) {
  const auto* start = timeline.step(0);
  if (start == nullptr) return {};
  std::vector<int> ranks;
  for (const int rank : timeline.ranks()) {
    const bool same = std::ranges::all_of(ids, [&](int id) {
      const auto before = start->find(rank, id, Stage::kWeight);
      const auto after = last.find(rank, id, Stage::kWeight);
      return before && after && before->bits == after->bits;
    });
    if (same) ranks.push_back(rank);
  }
  return ranks.size() < timeline.ranks().size() ? ranks : std::vector<int>{};
}

Verdict check_weights_drift(const Timeline& timeline) {
  if (timeline.unpaired && !timeline.unpaired->join) return std::vector{steps_apart(timeline)};
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{kNoCompleteStep};
  if (const char* reason = why_apart(timeline)) return Undecidable{reason};

  Finding finding = finding_of(kWeightsDrift);
  std::set<int> parameters;
  std::size_t apart = 0;
  const TimelineStep* last = nullptr;
  for (const auto* step : steps) {
    const auto ids = differing(timeline, *step, Stage::kWeight);
    if (ids.empty()) continue;
    ++apart;
    last = step;
    parameters.insert(ids.begin(), ids.end());
    if (!finding.first_step) {
      finding.first_step = step->number;
      if (step->weight_drift) finding.evidence["first_max_abs_difference"] = *step->weight_drift;
    }
    if (step->weight_drift) finding.evidence["last_max_abs_difference"] = *step->weight_drift;
    if (!step->drifting.empty()) {
      finding.evidence["last_most_apart"] =
          parameter_of(timeline, step->drifting.front().tensor).name;
    }
  }
  if (apart == 0) return std::vector<Finding>{};
  const bool all = parameters.size() == timeline.trainable().size();
  finding.where = where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  if (!all) finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["steps_apart"] = apart;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["parameters_apart"] = parameters.size();
  std::string size;
  if (finding.evidence.contains("last_max_abs_difference")) {
    size = fmt::format(", max |W_i - W_j| = {:.3e} at the last step seen",
                       finding.evidence["last_max_abs_difference"].get<double>());
  }
  finding.message =
      fmt::format("The weights of {} differ across ranks from step {} on{}.",
                  all ? "every parameter" : list_of(finding.parameters), *finding.first_step, size);
  finding.prescription = {
      "Find what changes the weights on one rank only. Until then, do not trust a checkpoint saved "
      "by rank 0.",
      ""};
  if (const auto never = never_updated(timeline, *last, parameters); !never.empty()) {
    finding.evidence["never_updated_on"] = never;
    finding.message +=
        fmt::format(" On {} they are still what they were before step 1.", ranks_of(never));
    finding.prescription.text =
        "Where a rank updates weights for all ranks, send all of them: one that belongs to no full "
        "round of an all_gather, or to no broadcast, is updated on its owner alone.";
  }
  return std::vector{finding};
}

}  // namespace

const Rule kWeightsDrift = {
    .code = "DDP301",
    .name = "weights-drift",
    .severity = Severity::kError,
    .headline = "weights differ across ranks",
    .check = check_weights_drift,
    .needs = {.ranks = 2},
    .on_mesh = OnMesh::kHolds,
    .only_a_difference = true,
    .explains = {{&kCollectiveMismatch, "", "steps-apart"}, {&kUnevenInputs, "", "steps-apart"}}};

}  // namespace ddp_doctor
