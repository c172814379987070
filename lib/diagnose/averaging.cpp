// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/averaging.h"

#include <algorithm>
#include <vector>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

using Ids = std::vector<int>;

// Equal before the optimizer's update, judged by the sampled values.
bool equal_before(const TimelineStep& step, const Ids& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](int id) {
    const auto first = step.sample(step.first_rank(), id, Stage::kWeightBefore);
    return first && std::all_of(step.here->begin(), step.here->end(), [&](int rank) {
             const auto seen = step.sample(rank, id, Stage::kWeightBefore);
             return seen && seen->values == first->values;
           });
  });
}

// Elements that the first rank sent through all-reduces of weights, or of tensors whose source is
// unknown; of an outer optimizer, whose gradients are differences of weights (DiLoCo), also those.
std::int64_t averaged(const TimelineStep& step, bool outer) {
  std::int64_t elements = 0;
  const auto* record = step.first();
  if (record == nullptr) return 0;
  for (const auto& call : record->calls) {
    const bool of_weights = call.target.starts_with("weight");
    const bool of_gradients = call.target.starts_with("gradient");
    if (call.op.starts_with("all_reduce") &&
        (of_gradients ? outer : of_weights || call.moment == "outside"))
      elements += call.numel * call.count;
  }
  return elements;
}

std::int64_t elements_of(const Timeline& timeline, const Ids& ids) {
  std::int64_t elements = 0;
  for (int id : ids) elements += timeline.tensors[static_cast<std::size_t>(id)].numel;
  return elements;
}

}  // namespace

bool averages_weights(const Timeline& timeline) {
  Ids apart;                  // after the last examined step
  std::int64_t elements = 0;  // averaged since then
  std::int64_t last = 0;
  int optimizer = 0;  // of the step before
  for (const auto& step : timeline.steps) {
    if (step.number == 0) continue;
    const int its = step.first() == nullptr ? optimizer : step.first()->optimizer;
    elements += averaged(step, last > 0 && its != optimizer);
    optimizer = its;
    if (!step.examined()) continue;
    const Ids now = differing(timeline, step, Stage::kWeight);
    const bool together =
        !apart.empty() && (now.empty() || (step.number == last + 1 && equal_before(step, apart)));
    if (together && elements >= elements_of(timeline, apart)) return true;
    apart = now;
    // Calls issued in this step after its weights were examined are counted in the next one.
    elements = 0;
    last = step.number;
  }
  return false;
}

}  // namespace ddp_doctor
