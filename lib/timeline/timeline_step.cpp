// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <map>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

const StepRecord* TimelineStep::at(int rank) const {
  const int index = rank - first_rank();
  return index < 0 || index >= static_cast<int>(ranks.size())
             ? nullptr
             : ranks[static_cast<std::size_t>(index)];
}

std::int64_t TimelineStep::recorded(int rank) const {
  const auto* record = at(rank);
  return record == nullptr ? number : record->recorded_step.value_or(number);
}

std::vector<const StepRecord*> TimelineStep::records() const {
  std::vector<const StepRecord*> records = ranks;
  std::erase(records, nullptr);
  return records;
}

bool TimelineStep::complete() const {
  return std::none_of(here->begin(), here->end(), [&](int rank) { return at(rank) == nullptr; });
}

bool TimelineStep::examined() const {
  return std::none_of(here->begin(), here->end(),
                      [&](int rank) { return at(rank) == nullptr || !at(rank)->examined; });
}

bool TimelineStep::has(int rank) const { return details != nullptr && at(rank) != nullptr; }

std::optional<TensorDigest> TimelineStep::find(int rank, int tensor, Stage stage) const {
  return has(rank) ? details->digest(rank, tensor, stage) : std::nullopt;
}

std::optional<Sample> TimelineStep::sample(int rank, int tensor, Stage stage) const {
  return has(rank) ? details->sample(rank, tensor, stage) : std::nullopt;
}

std::optional<Usage> TimelineStep::usage(int rank, int tensor) const {
  return has(rank) ? details->usage(rank, tensor) : std::nullopt;
}

bool TimelineStep::same_everywhere(Stage stage) const {
  return complete() && details != nullptr &&
         details->same_everywhere({Seen::kDigests, stage}, *here);
}

bool TimelineStep::different_everywhere(Stage stage) const {
  return complete() && details != nullptr &&
         details->different_everywhere({Seen::kDigests, stage}, *here);
}

std::vector<int> TimelineStep::distinct_users() const {
  std::vector<int> users;
  for (int rank : *here) {
    if (like(rank, {Seen::kUsages, Stage{}}) == rank) users.push_back(rank);
  }
  return users;
}

int TimelineStep::like(int rank, Slot slot) const {
  return details == nullptr ? rank : details->like(rank, slot, *here);
}

std::vector<std::vector<int>> TimelineStep::groups(int tensor, Stage stage) const {
  const auto* own = placed ? placed->find(tensor, stage) : nullptr;
  if (own == nullptr) return groups(tensor, stage, *here);
  std::vector<int> all;
  for (const auto& replicas : *own) {
    auto apart = groups(tensor, stage, replicas);
    if (apart.size() > 1) return apart;
    if (!apart.empty()) all.insert(all.end(), apart.front().begin(), apart.front().end());
  }
  if (all.empty()) return {};
  std::sort(all.begin(), all.end());
  return {all};
}

std::vector<std::vector<int>> TimelineStep::groups(int tensor, Stage stage,
                                                   const std::vector<int>& among) const {
  std::map<std::array<std::uint8_t, 16>, std::vector<int>> by_bits;
  for (const int rank : among) {
    if (const auto seen = find(rank, tensor, stage)) by_bits[seen->bits].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [bits, members] : by_bits) groups.push_back(std::move(members));
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace ddp_doctor
