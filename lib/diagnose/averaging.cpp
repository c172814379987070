// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/averaging.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/gossip.h"

namespace ddp_doctor {
namespace {

// Whether what is sampled of a weight is equal on all ranks; none if a rank has no sample.
std::optional<bool> equal_samples(const TimelineStep& step, int id, Stage stage) {
  const auto first = step.sample(step.first_rank(), id, stage);
  if (!first) return std::nullopt;
  for (const int rank : *step.here) {
    const auto seen = step.sample(rank, id, stage);
    if (!seen) return std::nullopt;
    if (seen->values != first->values) return false;
  }
  return true;
}

// Equal before the optimizer's update, and not after the step `apart`: by all values where
// something else than an optimizer was seen to write, else by the sampled ones.
bool equal_again(const TimelineStep& apart, const TimelineStep& step, int id) {
  const auto groups = step.groups(id, Stage::kWeightBefore, *step.here);
  std::size_t seen = 0;
  for (const auto& group : groups) seen += group.size();
  if (seen == step.here->size()) return groups.size() == 1;
  return equal_samples(apart, id, Stage::kWeight) == false &&
         equal_samples(step, id, Stage::kWeightBefore) == true;
}

// Elements that the first rank sent through reductions or gathers of weights, or of tensors whose
// source is unknown (not those of a broadcast, which has one rank's only); of an outer optimizer,
// whose gradients are differences of weights (DiLoCo), also those.
std::int64_t averaged(const TimelineStep& step, bool outer) {
  std::int64_t elements = 0;
  const auto* record = step.first();
  if (record == nullptr) return 0;
  for (const auto& call : record->calls) {
    const bool of_weights = call.target.starts_with("weight");
    const bool of_gradients = call.target.starts_with("gradient");
    const bool from_all =
        call.op.find("reduce") != std::string::npos || call.op.find("gather") != std::string::npos;
    if (from_all && (of_gradients ? outer : of_weights || call.moment == "outside"))
      elements += call.numel * call.count;
  }
  return elements;
}

// Weights that differ across ranks: where each was last seen so, and the elements averaged until
// then.
struct SeenApart {
  const TimelineStep* step;
  std::int64_t elements;
};
using Apart = std::map<int, SeenApart>;

// Those that this step finds equal: before its update, or after it.
std::set<int> together_again(const TimelineStep& step, const Apart& apart,
                             const std::set<int>& differing, bool next) {
  std::set<int> together;
  for (const auto& [id, seen] : apart) {
    const bool after = step.find(step.first_rank(), id, Stage::kWeight) && !differing.contains(id);
    if (after || (next && equal_again(*seen.step, step, id))) together.insert(id);
  }
  return together;
}

// As many elements as these have were averaged since they were seen to differ.
bool were_averaged(const Timeline& timeline, const std::set<int>& together, const Apart& apart,
                   std::int64_t elements) {
  std::int64_t needed = 0;
  std::int64_t before = elements;
  for (const int id : together) {
    needed += timeline.tensors[static_cast<std::size_t>(id)].numel;
    before = std::min(before, apart.at(id).elements);
  }
  return !together.empty() && elements - before >= needed;
}

}  // namespace

Averaging averaging_of(const Timeline& timeline) {
  std::map<int, int> times;  // that a parameter was averaged, of those that ever differed
  Apart apart;
  std::int64_t elements = 0;  // averaged so far
  std::int64_t last = 0;      // examined step
  int optimizer = 0;          // of the step before
  for (const auto& step : timeline.steps) {
    if (step.number == 0) continue;
    const int its = step.first() == nullptr ? optimizer : step.first()->optimizer;
    // Calls issued in a step after its weights were examined are counted in the next one.
    elements += averaged(step, last > 0 && its != optimizer);
    optimizer = its;
    if (!step.examined()) continue;
    const auto ids = differing(timeline, step, Stage::kWeight);
    const std::set<int> now(ids.begin(), ids.end());
    // An outer optimizer may begin from where all ranks began, whatever it makes of that.
    const bool next = !is_outer_step(timeline, step);
    const auto together = together_again(step, apart, now, next);
    const bool counts = were_averaged(timeline, together, apart, elements);
    for (const int id : together) {
      times[id] += counts ? 1 : 0;
      apart.erase(id);
    }
    for (const int id : now) {
      times.try_emplace(id, 0);
      apart[id] = {&step, elements};
    }
    last = step.number;
  }
  // A few that meet by chance, beside reductions of something else, are no local SGD.
  std::int64_t all = 0;
  std::int64_t met = 0;
  for (const auto& [id, count] : times) {
    const auto numel = timeline.tensors[static_cast<std::size_t>(id)].numel;
    all += numel;
    met += count > 0 ? numel : 0;
  }
  Averaging averaging;
  if (2 * met < all) return averaging;
  const bool again =
      std::any_of(times.begin(), times.end(), [](const auto& one) { return one.second > 1; });
  for (const auto& [id, count] : times) {
    if (count > 0) averaging.averaged.insert(id);
    if (count == 0 && again) averaging.left_out.insert(id);
  }
  return averaging;
}

bool keeps_normalization_local(const Timeline& timeline, const Averaging& averaging) {
  std::set<std::string> with_buffers;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "buffer") with_buffers.insert(tensor.module);
  }
  const auto has_buffers = [&](int id) {
    return with_buffers.contains(timeline.tensors[static_cast<std::size_t>(id)].module);
  };
  return !averaging.left_out.empty() &&
         std::all_of(averaging.left_out.begin(), averaging.left_out.end(), has_buffers) &&
         std::none_of(averaging.averaged.begin(), averaging.averaged.end(), has_buffers);
}

const char* why_apart(const Timeline& timeline) {
  if (!averaging_of(timeline).averaged.empty())
    return "the program averages its weights every few steps (local SGD): in between, the ranks "
           "differ on purpose";
  if (mixes_weights(timeline))
    return "ranks mix their weights with those of a few others (gossip): they differ on purpose";
  return nullptr;
}

}  // namespace ddp_doctor
