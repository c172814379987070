// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/gossip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/diagnose/facts.h"
#include "lib/timeline/placements.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMixtures = 3;  // steps
constexpr double kRounding = 1e-5;    // of the largest of the weights that are mixed
enum class Between { kUnchanged, kMixed, kOther };

// What happened to a weight between the two updates.
Between between(const TimelineStep& last, const TimelineStep& step, int id) {
  std::vector<Sample> was, is;
  for (const int rank : *step.here) {
    const auto after = last.sample(rank, id, Stage::kWeight);
    const auto before = step.sample(rank, id, Stage::kWeightBefore);
    if (!after || !before || after->values.size() != before->values.size()) return Between::kOther;
    was.push_back(*after);
    is.push_back(*before);
  }
  bool changed = false;
  for (std::size_t k = 0; k < was.front().values.size(); ++k) {
    double low = std::numeric_limits<double>::infinity(), high = -low, largest = 0.0;
    for (const auto& one : was) {
      if (k >= one.values.size()) return Between::kOther;
      low = std::min(low, one.values[k]);
      high = std::max(high, one.values[k]);
      largest = std::max(largest, std::abs(one.values[k]));
    }
    for (std::size_t r = 0; r < is.size(); ++r) {
      const double now = is[r].values[k];
      if (!(now >= low - kRounding * largest && now <= high + kRounding * largest))
        return Between::kOther;
      changed = changed || now != was[r].values[k];
    }
  }
  return changed ? Between::kMixed : Between::kUnchanged;
}

bool is_among_some(const Collective& call) {
  return !call.group.empty() && (call.op.find("reduce") != std::string::npos ||
                                 call.op.find("gather") != std::string::npos);
}

// The first rank reduces now with these ranks, now with those.
bool changes_partners(const Timeline& timeline) {
  std::set<std::string> groups;
  for (const auto* step : complete_steps(timeline)) {
    for (const auto& call : step->first()->calls) {
      if (is_among_some(call)) groups.insert(call.group);
    }
  }
  return groups.size() > 1;
}

// Elements that the first rank exchanged with a few others, outside of forward and backward.
std::int64_t exchanged(const TimelineStep& step, bool in_groups) {
  std::int64_t elements = 0;
  for (const auto& call : step.first()->calls) {
    if (call.moment != "forward" && call.moment != "backward" &&
        (is_point_to_point(call) || (in_groups && is_among_some(call))))
      elements += call.numel * call.count;
  }
  return elements;
}

}  // namespace

bool mixes_weights(const Timeline& timeline) {
  const bool in_groups = changes_partners(timeline);
  std::size_t mixtures = 0;
  const TimelineStep* last = nullptr;
  for (const auto* step : complete_steps(timeline)) {
    const auto* before = std::exchange(last, step);
    if (before == nullptr || before->number + 1 != step->number) continue;
    std::int64_t apart = 0, mixed = 0;
    for (const int id : differing(timeline, *before, Stage::kWeight)) {
      const auto how = between(*before, *step, id);
      if (how == Between::kOther) return false;
      const auto numel = timeline.tensors[static_cast<std::size_t>(id)].numel;
      apart += numel;
      mixed += how == Between::kMixed ? numel : 0;
    }
    // Calls that follow the examination of a step's weights are counted in the next one.
    if (apart > 0 && 2 * mixed >= apart && exchanged(*step, in_groups) >= mixed) ++mixtures;
  }
  return mixtures >= kMixtures;
}

}  // namespace ddp_doctor
