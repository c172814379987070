// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/step_details.h"

#include <algorithm>

#include "lib/timeline/seen_steps.h"

namespace ddp_doctor {

const StepDetails::Groups* StepDetails::groups(Slot slot) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Groups& groups) { return groups.slot == slot; });
  return found == groups_.end() ? nullptr : &*found;
}

bool StepDetails::same_everywhere(Slot slot) const {
  const auto* all = groups(slot);
  return all != nullptr && all->readers.size() == 1 &&
         std::all_of(owner_.run_ids_.begin(), owner_.run_ids_.end(), [&](const auto& entry) {
           return all->of_rank[owner_.index_of(entry.first)] == 1;
         });
}

bool StepDetails::different_everywhere(Slot slot) const {
  const auto* all = groups(slot);
  return all != nullptr && all->readers.size() == owner_.run_ids_.size() && owner_.number_alike();
}

int StepDetails::like(int rank, Slot slot) const {
  const auto* all = groups(slot);
  const auto group = all == nullptr ? 0 : all->of_rank[owner_.index_of(rank)];
  return group == 0 ? rank : all->readers[group - 1];
}

std::optional<StepDetails::Place> StepDetails::find(int rank, int tensor, Slot slot) const {
  const auto* all = groups(slot);
  if (all == nullptr) return {};
  const std::size_t index = owner_.index_of(rank);
  const std::uint32_t group = index < all->of_rank.size() ? all->of_rank[index] : 0;
  if (group == 0) return {};
  if (all->rows.empty()) owner_.read(index_, slot);
  const Row& row = all->rows[group - 1];
  const int position = (*row.positions)[static_cast<std::size_t>(tensor)];
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
