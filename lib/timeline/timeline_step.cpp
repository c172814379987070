#include <algorithm>
#include <array>
#include <map>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

std::int64_t TimelineStep::recorded(int rank) const {
  const auto* record = ranks[static_cast<std::size_t>(rank)];
  return record == nullptr ? number : record->recorded_step.value_or(number);
}

bool TimelineStep::complete() const {
  return std::none_of(ranks.begin(), ranks.end(), [](const auto* rank) { return rank == nullptr; });
}

bool TimelineStep::examined() const {
  return std::none_of(ranks.begin(), ranks.end(),
                      [](const auto* rank) { return rank == nullptr || !rank->examined; });
}

void TimelineStep::set(int rank, const StepRecord* record, std::size_t tensors) {
  const auto index = static_cast<std::size_t>(rank);
  slots_.resize(ranks.size());
  ranks[index] = record;
  // Most steps are not looked at: they take no room.
  if (record->observations.empty() && record->samples.empty() && record->usages.empty()) return;
  slots_[index].resize(tensors);
  const auto known = [&](int tensor) {
    return tensor >= 0 && static_cast<std::size_t>(tensor) < tensors;
  };
  for (const auto& observation : record->observations) {
    if (!known(observation.tensor)) continue;
    slots_[index][static_cast<std::size_t>(observation.tensor)]
        .by_stage[static_cast<int>(observation.stage)] = &observation;
  }
  for (const auto& sample : record->samples) {
    if (!known(sample.tensor)) continue;
    slots_[index][static_cast<std::size_t>(sample.tensor)]
        .sample_by_stage[static_cast<int>(sample.stage)] = &sample;
  }
  for (const auto& usage : record->usages) {
    if (known(usage.tensor)) slots_[index][static_cast<std::size_t>(usage.tensor)].usage = &usage;
  }
}

const TimelineStep::Slots* TimelineStep::slots(int rank, int tensor) const {
  const auto index = static_cast<std::size_t>(rank);
  if (index >= slots_.size() || static_cast<std::size_t>(tensor) >= slots_[index].size())
    return nullptr;
  return &slots_[index][static_cast<std::size_t>(tensor)];
}

const Observation* TimelineStep::find(int rank, int tensor, Stage stage) const {
  const auto* found = slots(rank, tensor);
  return found == nullptr ? nullptr : found->by_stage[static_cast<int>(stage)];
}

const Sample* TimelineStep::sample(int rank, int tensor, Stage stage) const {
  const auto* found = slots(rank, tensor);
  return found == nullptr ? nullptr : found->sample_by_stage[static_cast<int>(stage)];
}

const Usage* TimelineStep::usage(int rank, int tensor) const {
  const auto* found = slots(rank, tensor);
  return found == nullptr ? nullptr : found->usage;
}

std::vector<std::vector<int>> TimelineStep::groups(int tensor, Stage stage) const {
  std::map<std::array<std::uint8_t, 16>, std::vector<int>> by_bits;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (const auto* seen = find(rank, tensor, stage)) by_bits[seen->digest.bits].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [bits, members] : by_bits) groups.push_back(std::move(members));
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace ddp_doctor
