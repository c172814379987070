// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/rules/ddp108_own_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr double kSameFactor = 1e-3;
constexpr char kFlattens[] = "FullyShardedDataParallel";  // a source of placements

// On a mesh: the factor between each rank's gradients and those of the lowest rank that holds some
// of the same, if any two ranks have one for all parameters that they share. Nothing if they do
// not, or if all are 1.
std::optional<std::map<int, double>> factors_between_replicas(const Timeline& timeline,
                                                              const TimelineStep& step) {
  constexpr std::size_t kMinValues = 16;
  constexpr double kFarBelow = 1e-4;  // of the largest: rounding
  struct Shared {
    std::vector<double> ratios;
    std::set<int> parameters;
  };
  std::map<std::pair<int, int>, Shared> pairs;  // a rank, and the lowest that holds the same
  for (const int id : timeline.trainable()) {
    for (const auto& ranks : timeline.replicas_of(id, Stage::kGradient)) {
      const auto first = step.sample(ranks.front(), id, Stage::kGradient);
      for (const int rank : ranks) {
        const auto own = step.sample(rank, id, Stage::kGradient);
        if (rank == ranks.front() || !first || !own || own->values.size() != first->values.size())
          continue;
        auto& shared = pairs[{rank, ranks.front()}];
        shared.parameters.insert(id);
        double largest = 0.0;
        for (const double value : first->values) largest = std::max(largest, std::abs(value));
        for (std::size_t i = 0; i < own->values.size(); ++i) {
          if (std::abs(first->values[i]) > kFarBelow * largest)
            shared.ratios.push_back(own->values[i] / first->values[i]);
        }
      }
    }
  }
  std::map<int, double> factors;
  bool apart = false;
  for (const auto& [pair, shared] : pairs) {
    const auto [low, high] = std::minmax_element(shared.ratios.begin(), shared.ratios.end());
    if (shared.ratios.size() < kMinValues || shared.parameters.size() < 2 || !(*low > 0.0) ||
        *high - *low > kSameFactor * *high)
      return {};
    factors.emplace(pair.first, *high);
    apart = apart || std::abs(*high - 1.0) > 1e-5;
  }
  return apart ? std::optional(factors) : std::nullopt;
}

// Each rank clipped by a norm of its own, over the parts that it holds. The first step in which
// gradients differ shows it: later ones begin from weights that differ.
std::vector<Finding> own_norm_of_replicas(const Timeline& timeline,
                                          const std::vector<const TimelineStep*>& steps) {
  if (!timeline.on_mesh()) return {};
  const auto apart = std::find_if(steps.begin(), steps.end(), [&](const TimelineStep* step) {
    return !differing(timeline, *step, Stage::kGradient).empty();
  });
  if (apart == steps.end()) return {};
  const auto factors = factors_between_replicas(timeline, **apart);
  if (!factors) return {};
  Finding finding = finding_of(kClipBeforeSync);
  finding.certainty = Certainty::kLikely;  // a loss may be scaled by rank
  finding.ranks = timeline.ranks();
  finding.first_step = (*apart)->number;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.evidence["kind"] = "own-norm";
  std::string by_rank;
  for (const auto& [rank, factor] : *factors) {
    finding.evidence["factor_by_rank"][std::to_string(rank)] = factor;
    by_rank += fmt::format("{}rank {}: {:.5g}", by_rank.empty() ? "" : ", ", rank, factor);
  }
  finding.message = fmt::format(
      "In step {} ranks that hold the same parameters have gradients that differ by one factor for "
      "all parameters ({}), as if each rank clipped by the norm of its own part.",
      *finding.first_step, by_rank);
  finding.prescription = {
      "Clip by the norm of the whole model, which is the same on every rank: add up the squares "
      "of the parts' norms over the ranks that hold different parts, and count replicas once.",
      ""};
  return {finding};
}

// The factor by which a rank scaled its shards after they were reduced, if it is one for all.
std::optional<double> factor_of_shards(const Timeline& timeline, const TimelineStep& step,
                                       int rank) {
  constexpr double kSpread = 0.01;    // rounding of bfloat16
  constexpr double kFarBelow = 1e-3;  // of the largest: rounding
  std::vector<double> factors;
  for (const int id : timeline.trainable()) {
    const auto before = step.sample(rank, id, Stage::kReducedGradient);
    const auto after = step.sample(rank, id, Stage::kGradient);
    if (!before || !after || before->values.size() != after->values.size()) continue;
    double largest = 0.0;
    for (const double value : before->values) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < before->values.size(); ++i) {
      if (std::isfinite(before->values[i]) && std::abs(before->values[i]) > kFarBelow * largest)
        factors.push_back(after->values[i] / before->values[i]);
    }
  }
  if (factors.size() < 4) return {};
  std::sort(factors.begin(), factors.end());
  if (!(factors.front() > 0.0) || factors.back() - factors.front() > kSpread * factors.back())
    return {};
  return factors[factors.size() / 2];
}

// Ranks that together hold one parameter scaled their shards by different factors. Stages of a
// pipeline and meshes side by side may be clipped apart: they share none.
bool shards_scaled_apart(const Timeline& timeline, const TimelineStep& step,
                         const std::map<int, double>& factors) {
  constexpr double kApart = 0.03;
  const auto& placements = timeline.layout.placements;
  const auto apart = [&](int id, const Ranks& ranks) {
    double low = INFINITY;
    double high = 0.0;
    for (const int rank : ranks) {
      const auto factor = factors.find(rank);
      if (factor == factors.end() || !step.sample(rank, id, Stage::kReducedGradient)) continue;
      low = std::min(low, factor->second);
      high = std::max(high, factor->second);
    }
    return high - low > kApart * high;
  };
  const auto ids = timeline.trainable();
  return std::any_of(ids.begin(), ids.end(), [&](int id) {
    const auto declared = placements.find(timeline.tensors[static_cast<std::size_t>(id)].name);
    return declared != placements.end() &&
           std::any_of(declared->second.begin(), declared->second.end(),
                       [&](const Declared& one) { return apart(id, one.by); });
  });
}

// Of parameters that something shards, each rank scaled its part by a factor of its own.
std::vector<Finding> own_norm_of_shards(const Timeline& timeline,
                                        const std::vector<const TimelineStep*>& steps) {
  const auto& placements = timeline.layout.placements;
  if (timeline.has_wrapper() || placements.empty()) return {};
  Finding finding = finding_of(kClipBeforeSync);
  std::size_t affected = 0;
  std::string by_rank;
  for (const auto* step : steps) {
    std::map<int, double> factors;
    for (const int rank : *step->here) {
      if (const auto factor = factor_of_shards(timeline, *step, rank)) factors[rank] = *factor;
    }
    if (!shards_scaled_apart(timeline, *step, factors)) continue;
    ++affected;
    if (finding.first_step) continue;
    finding.first_step = step->number;
    for (const auto& [rank, factor] : factors) {
      finding.evidence["factor_by_rank"][std::to_string(rank)] = factor;
      by_rank += fmt::format("{}{:.4g}", by_rank.empty() ? "" : ", ", factor);
    }
  }
  if (affected == 0) return {};
  const bool flat = placements.begin()->second.front().placement.source == kFlattens;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  finding.evidence["kind"] = "own-norm";
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Each rank scaled the gradients of its shards by a factor of its own before the step ({} in "
      "step {}), in {} of {}: as if it clipped by the norm of its own shards, not by that of the "
      "model.",
      by_rank, *finding.first_step, affected, count_of(steps.size(), "step"));
  finding.prescription = {
      flat ? "Clip with the wrapper's own method, which takes the norm over all shards: "
             "model.clip_grad_norm_(max_norm), not torch.nn.utils.clip_grad_norm_."
           : "Clip by the norm over all shards: torch.nn.utils.clip_grad_norm_ on the DTensors "
             "themselves, not on their local parts.",
      ""};
  return {finding};
}

}  // namespace

std::vector<Finding> clip_by_own_norm(const Timeline& timeline,
                                      const std::vector<const TimelineStep*>& steps) {
  auto of_shards = own_norm_of_shards(timeline, steps);
  return of_shards.empty() ? own_norm_of_replicas(timeline, steps) : of_shards;
}

}  // namespace ddp_doctor
