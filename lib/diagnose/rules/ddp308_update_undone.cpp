// SPDX-License-Identifier: BSD-3-Clause
// DDP308: what an optimizer writes to some parameters is replaced by their values from before it,
// in every step, while its others keep what they get.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kPairs = 4;  // steps

// Two consecutive steps that were examined on every rank.
using Pair = std::pair<const TimelineStep*, const TimelineStep*>;

std::vector<Pair> pairs_of(const std::vector<const TimelineStep*>& steps) {
  std::vector<Pair> pairs;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i]->number == steps[i - 1]->number + 1 && steps[i - 1]->number > 0)
      pairs.emplace_back(steps[i - 1], steps[i]);
  }
  return pairs;
}

enum class After { kUnknown, kKept, kUndone };

// What became of the rank's update of a parameter by the beginning of the next step.
After after(const Pair& pair, int rank, int id) {
  const auto usage = pair.first->usage(rank, id);
  if (!usage || !usage->in_optimizer) return After::kUnknown;
  const auto before = pair.first->sample(rank, id, Stage::kWeightBefore);
  const auto written = pair.first->sample(rank, id, Stage::kWeight);
  const auto next = pair.second->sample(rank, id, Stage::kWeightBefore);
  if (!before || !written || !next || written->values == before->values) return After::kUnknown;
  return next->values == before->values ? After::kUndone : After::kKept;
}

// The collective that writes to one of them before the next step.
std::optional<Where> overwritten_at(const Timeline& timeline, const std::set<int>& ids,
                                    std::string& op) {
  std::set<std::string> targets;
  for (const int id : ids)
    targets.insert("weight of " + timeline.tensors[static_cast<std::size_t>(id)].name);
  for (const auto& step : timeline.steps) {
    for (const auto* record : step.records()) {
      for (const auto& call : record->calls) {
        if (!targets.contains(call.target) || call.file.empty()) continue;
        op = call.op;
        return Where{call.file, call.line};
      }
    }
  }
  return {};
}

Verdict check_update_undone(const Timeline& timeline) {
  const auto pairs = pairs_of(complete_steps(timeline));
  std::set<int> undone, kept;
  std::set<int> ranks;
  for (const int rank : timeline.ranks()) {
    for (const int id : timeline.trainable()) {
      std::size_t times = 0;
      for (const Pair& pair : pairs) {
        const After what = after(pair, rank, id);
        times += what == After::kUndone ? 1 : 0;
        if (what == After::kKept) kept.insert(id);
      }
      if (times < kPairs || times < pairs.size()) continue;
      undone.insert(id);
      ranks.insert(rank);
    }
  }
  // A trial step is taken back as a whole.
  if (undone.empty() || kept.empty()) return std::vector<Finding>{};
  Finding finding = finding_of(kUpdateUndone);
  finding.certainty = Certainty::kLikely;
  finding.ranks = {ranks.begin(), ranks.end()};
  finding.first_step = pairs.front().first->number;
  finding.parameters = parameters_of(timeline, undone);
  finding.evidence["steps_undone"] = pairs.size();
  finding.evidence["parameters_undone"] = undone.size();
  finding.evidence["parameters_kept"] = kept.size();
  std::string op;
  finding.where = overwritten_at(timeline, undone, op);
  finding.message = fmt::format(
      "In {} the update of {} was undone: before the next step {} the values from before "
      "optimizer.step() again, so {}. {} kept what the optimizer wrote.",
      count_of(pairs.size(), "step"), list_of(finding.parameters),
      undone.size() == 1 ? "it had" : "they had",
      undone.size() == 1 ? "it never trains" : "they never train",
      count_of(kept.size(), "other parameter"));
  finding.prescription = {
      finding.where
          ? fmt::format("See which rank this {} takes each parameter from: it must be the rank "
                        "whose optimizer updates it, by the same rule that shares them out.",
                        op)
          : "See what writes to these parameters after optimizer.step(): weights that are put back "
            "must not be those from before the update.",
      ""};
  if (!finding.where) finding.where = where_stepped(timeline, finding.first_step);
  return std::vector{finding};
}

}  // namespace

const Rule kUpdateUndone = {.code = "DDP308",
                            .name = "update-undone",
                            .severity = Severity::kError,
                            .headline = "what the optimizer writes to some parameters is undone",
                            .check = check_update_undone,
                            .needs = {.steps = kPairs + 1},
                            .on_mesh = OnMesh::kHolds};

}  // namespace ddp_doctor
