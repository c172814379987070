// SPDX-License-Identifier: BSD-3-Clause
// A run with several wrappers, taken apart.

#include <algorithm>
#include <set>

#include "lib/timeline/timeline.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// How often each thing happened to `wrapper` in a step, from its trace (docs/record.md).
void count_for(int wrapper, StepRecord& step) {
  const std::string own = std::to_string(wrapper);
  step.forwards_through_wrapper = step.forwards_around_wrapper = 0;
  step.backwards = step.unsynchronized_backwards = 0;
  for (const auto& [action, count] : actions_of(step.trace)) {
    if (action == "F" + own + "+" || action == "F" + own + "-")
      step.forwards_through_wrapper += count;
    if (action == "N" + own) step.forwards_around_wrapper += count;
    if (const auto how = backward_of(action, wrapper)) {
      step.backwards += count;
      if (!*how) step.unsynchronized_backwards += count;
    }
  }
}

}  // namespace

std::vector<Timeline> Timeline::parts() const {
  std::set<std::optional<int>> owners;
  for (const auto& tensor : tensors) {
    if (tensor.kind == "parameter" && tensor.trainable) owners.insert(tensor.wrapper);
  }
  std::vector<Timeline> parts;
  if (owners.size() < 2) return parts;
  for (const auto& owner : owners) {
    const auto mine = [&](int id) {
      return id >= 0 && tensors[static_cast<std::size_t>(id)].wrapper == owner;
    };
    std::vector<RankRecord> records;
    for (const auto& [rank, whole] : records_) {
      RankRecord record = *whole;
      record.tensors = tensors;
      for (auto& tensor : record.tensors) tensor.trainable = tensor.trainable && mine(tensor.id);
      std::erase_if(record.ddp_fields, [&](const auto& field) { return field.wrapper != owner; });
      std::erase_if(record.steps, [&, rank = rank](const StepRecord& step) {
        const auto* merged = this->step(step.step);
        const auto took_part = [&](const TensorInfo& tensor) {
          return mine(tensor.id) && merged->usage(rank, tensor.id);
        };
        return step.examined && step.step > 0 &&
               std::none_of(tensors.begin(), tensors.end(), took_part);
      });
      if (owner) {
        for (auto& step : record.steps) count_for(*owner, step);
      }
      records.push_back(std::move(record));
    }
    parts.push_back(assemble(run, std::move(records)));
    parts.back().whole_ = whole_;
    parts.back().rank_local = rank_local;
    parts.back().layout = layout;  // of all of it
    parts.back().wrapper = owner;
    if (!owner) parts.back().wrapper.reset();
    for (auto& step : parts.back().steps) {
      const auto* known = this->step(step.number);
      step.details = known->details;  // a part numbers its tensors as the whole does
      // A part has no kept values: those of the whole run apply.
      step.weight_drift = known->weight_drift;
      step.drift_along = known->drift_along;
    }
    parts.back().place(placed_);
  }
  return parts;
}

}  // namespace ddp_doctor
