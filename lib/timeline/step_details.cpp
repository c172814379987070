// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/step_details.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/timeline/seen_steps.h"

namespace ddp_doctor {

const StepDetails::Groups* StepDetails::groups(Slot slot) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Groups& groups) { return groups.slot == slot; });
  return found == groups_.end() ? nullptr : &*found;
}

std::uint32_t StepDetails::group_of(const Groups& groups, int rank) const {
  const std::size_t index = owner_.index_of(rank);
  return index < groups.of_rank.size() ? groups.of_rank[index] : 0;
}

bool StepDetails::same_everywhere(Slot slot, const std::vector<int>& ranks) const {
  const auto* all = groups(slot);
  if (all == nullptr || ranks.empty()) return false;
  const std::uint32_t first = group_of(*all, ranks.front());
  return first != 0 && std::all_of(ranks.begin(), ranks.end(),
                                   [&](int rank) { return group_of(*all, rank) == first; });
}

bool StepDetails::different_everywhere(Slot slot, const std::vector<int>& ranks) const {
  const auto* all = groups(slot);
  if (all == nullptr || !owner_.number_alike()) return false;
  std::set<std::uint32_t> seen;
  for (int rank : ranks) seen.insert(group_of(*all, rank));
  return seen.size() == ranks.size() && !seen.contains(0);
}

int StepDetails::like(int rank, Slot slot, const std::vector<int>& ranks) const {
  const auto* all = groups(slot);
  const auto group = all == nullptr ? 0 : group_of(*all, rank);
  if (group == 0) return rank;
  const int reader = all->readers[group - 1];
  if (std::binary_search(ranks.begin(), ranks.end(), reader)) return reader;
  return *std::find_if(ranks.begin(), ranks.end(),
                       [&](int other) { return group_of(*all, other) == group; });
}

std::optional<StepDetails::Place> StepDetails::find(int rank, int tensor, Slot slot) const {
  const auto* all = groups(slot);
  if (all == nullptr) return {};
  const std::uint32_t group = group_of(*all, rank);
  if (group == 0) return {};
  if (all->rows.empty()) owner_.read(index_, slot);
  const Row& row = all->rows[group - 1];
  const auto& positions = *row.positions;
  if (tensor < 0 || std::cmp_greater_equal(tensor, positions.size())) return {};  // damaged
  const int position = positions[static_cast<std::size_t>(tensor)];
  if (position < 0) return {};
  return Place{row.packed.get(), static_cast<std::size_t>(position)};
}

std::optional<TensorDigest> StepDetails::digest(int rank, int tensor, Stage stage) const {
  const auto at = find(rank, tensor, {Seen::kDigests, stage});
  return at ? std::optional(at->row->digest(at->position)) : std::nullopt;
}

std::optional<Sample> StepDetails::sample(int rank, int tensor, Stage stage) const {
  const auto at = find(rank, tensor, {Seen::kSamples, stage});
  return at ? std::optional(Sample{tensor, stage, at->row->sample(at->position)}) : std::nullopt;
}

std::optional<Usage> StepDetails::usage(int rank, int tensor) const {
  const auto at = find(rank, tensor, {Seen::kUsages, Stage{}});
  if (!at) return {};
  Usage usage = at->row->usage(at->position);
  usage.tensor = tensor;
  return usage;
}

}  // namespace ddp_doctor
