// SPDX-License-Identifier: BSD-3-Clause
// DDP401: local gradients are bit-identical on several ranks, step after step: these ranks see the
// same data and draw the same noise.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMinSteps = 4;

// The program's own hooks synchronize: the gradient after the backward is no longer local.
bool synchronized_in_backward(const TimelineStep& step) {
  const auto& calls = step.first()->calls;
  return std::any_of(calls.begin(), calls.end(),
                     [](const Collective& call) { return call.moment == "backward"; });
}

// Groups of ranks whose local gradients are equal for all parameters that have one; empty if too
// few were recorded, or if all are zero.
std::vector<std::vector<int>> ranks_with_equal_gradients(const Timeline& timeline,
                                                         const TimelineStep& step) {
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
  if (steps.size() < kMinSteps)
    return Undecidable{fmt::format("fewer than {} steps were completed by every rank", kMinSteps)};
  std::set<int> ranks;
  std::size_t same = 0;
  std::size_t seen = 0;
  Finding finding = finding_of(kDuplicateData);
  for (const auto* step : steps) {
    if (timeline.trainable().empty()) break;
    const auto groups = ranks_with_equal_gradients(timeline, *step);
    ++seen;
    if (groups.empty()) continue;
    ++same;
    if (!finding.first_step) finding.first_step = step->number;
    for (const auto& group : groups) ranks.insert(group.begin(), group.end());
  }
  // A few equal steps are chance, or a batch at the end of the data; nearly every step is a
  // pattern.
  if (same < kMinSteps || same * 10 < seen * 8) return std::vector<Finding>{};
  finding.where = where(timeline, "backward");
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["steps_alike"] = same;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Before the reduction the gradients of {} are identical, bit for bit, for every parameter in "
      "{} of {}: these ranks compute the same batch, and the extra ranks contribute nothing.",
      ranks_of(finding.ranks), same, count_of(steps.size(), "step"));
  finding.prescription = {
      "Give each rank its own part of the data: use a DistributedSampler or split_dataset_by_node, "
      "or select by rank and world size in an IterableDataset (samplers do not apply to it). Seed "
      "random noise differently on each rank.",
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
