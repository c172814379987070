// SPDX-License-Identifier: BSD-3-Clause
// DDP401: local gradients are the same bits on several ranks, step after step: these ranks see the
// same data and draw the same noise.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kFewestSteps = 4;

// By hooks of the program's own: what is seen after the backward is no local gradient any more.
bool synchronized_in_backward(const TimelineStep& step) {
  const auto& calls = step.first()->calls;
  return std::any_of(calls.begin(), calls.end(),
                     [](const Collective& call) { return call.moment == "backward"; });
}

// Ranks in groups of equal local gradients on all parameters that have one; nothing if too little
// was seen, or all of it is zero.
std::vector<std::vector<int>> twins(const Timeline& timeline, const TimelineStep& step) {
  if (step.different_everywhere(Stage::kLocalGradient)) return {};
  const bool in_backward = synchronized_in_backward(step);
  std::map<std::vector<std::array<std::uint8_t, 16>>, std::vector<int>> by_gradients;
  for (int rank : all_ranks(timeline)) {
    std::vector<std::array<std::uint8_t, 16>> gradients;
    double norm = 0.0;
    for (int id : timeline.trainable()) {
      const auto usage = step.usage(rank, id);
      if (!usage || !usage->used) continue;
      const auto seen = in_backward ? step.find(rank, id, Stage::kLocalGradient)
                                    : local_gradient(timeline, step, rank, id);
      if (!seen) return {};
      gradients.push_back(seen->bits);
      norm += seen->l2_norm;
    }
    if (gradients.size() < 2 || norm == 0.0) return {};
    by_gradients[std::move(gradients)].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [gradients, ranks] : by_gradients) {
    if (ranks.size() > 1) groups.push_back(std::move(ranks));
  }
  return groups;
}

Verdict check_duplicate_data(const Timeline& timeline) {
  if (all_ranks(timeline).size() < 2)
    return Undecidable{"there is only one rank, nothing to compare"};
  const auto steps = complete_steps(timeline);
  if (steps.size() < kFewestSteps)
    return Undecidable{
        fmt::format("fewer than {} steps were completed by every rank", kFewestSteps)};
  std::set<int> ranks;
  std::size_t same = 0;
  std::size_t seen = 0;
  Finding finding = finding_of(kDuplicateData);
  for (const auto* step : steps) {
    if (timeline.trainable().empty()) break;
    const auto groups = twins(timeline, *step);
    ++seen;
    if (groups.empty()) continue;
    ++same;
    if (!finding.first_step) finding.first_step = step->number;
    for (const auto& group : groups) ranks.insert(group.begin(), group.end());
  }
  // Once is chance, or a batch at the end of the data; nearly always is a pattern.
  if (same < kFewestSteps || same * 10 < seen * 8) return std::vector<Finding>{};
  finding.where = where(timeline, "backward");
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["steps_alike"] = same;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Before the reduction the gradients of {} are identical, bit for bit, on every parameter in "
      "{} "
      "of {}: they compute the same batch, and the extra ranks add nothing.",
      ranks_of(finding.ranks), same, count_of(steps.size(), "step"));
  finding.prescription = {
      "Give each rank its own share: a DistributedSampler, split_dataset_by_node, or rank and "
      "world "
      "size in an IterableDataset (samplers do not apply to those); seed noise differently per "
      "rank.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kDuplicateData = {"DDP401",
                             "duplicate-data",
                             Severity::kWarning,
                             "several ranks compute the same local gradients",
                             check_duplicate_data,
                             Scope::kWrapper};

}  // namespace ddp_doctor
