// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/seen_steps.h"

#include <sys/resource.h>

#include <algorithm>

#include "lib/timeline/in_parallel.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxStepsAtOnce = 64;
constexpr std::size_t kBytesPerTensor = 40;
constexpr std::size_t kMaxKnownLists = 64;
constexpr std::size_t kMaxReaders = 1024;

// How many records may stay open: half of the files that this process may open.
std::size_t most_readers() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return std::min<rlim_t>(files.rlim_cur / 2, kMaxReaders);
}

}  // namespace

SeenSteps::SeenSteps(std::map<int, std::vector<int>> run_ids, int first, std::size_t ranks,
                     std::size_t tensors, std::map<int, std::filesystem::path> files,
                     std::size_t most_held)
    : run_ids_(std::move(run_ids)),
      first_(first),
      ranks_(ranks),
      tensors_(tensors),
      files_(std::move(files)),
      readers_(std::min(files_.size(), most_readers())),
      most_held_(most_held) {
  std::map<std::vector<int>, int> numberings;
  for (const auto& [rank, ids] : run_ids_)
    numbering_[rank] = numberings.emplace(ids, static_cast<int>(numberings.size())).first->second;
}

SeenSteps::~SeenSteps() = default;

StepDetails::Groups& SeenSteps::groups_for(StepDetails& step, Slot slot) const {
  for (auto& groups : step.groups_) {
    if (groups.slot == slot) return groups;
  }
  step.groups_.push_back({slot, std::vector<std::uint32_t>(ranks_), {}, {}});
  return step.groups_.back();
}

// The group of `rank`, whose data has this `root`; a new group if no other rank has it.
std::uint32_t SeenSteps::group_of(StepDetails::Groups& groups,
                                  std::map<std::pair<int, Root>, int>& known, int rank,
                                  const Root& root) const {
  const auto next = static_cast<int>(groups.readers.size()) + 1;
  const auto [group, is_new] = known.try_emplace({numbering_.at(rank), root}, next);
  if (is_new) groups.readers.push_back(rank);
  groups.of_rank[index_of(rank)] = static_cast<std::uint32_t>(group->second);
  return is_new ? static_cast<std::uint32_t>(next) : 0;
}

bool SeenSteps::number_alike() const {
  return std::all_of(numbering_.begin(), numbering_.end(),
                     [](const auto& of_rank) { return of_rank.second == 0; });
}

StepDetails* SeenSteps::add(const std::vector<const StepRecord*>& by_rank) {
  const bool any = std::any_of(by_rank.begin(), by_rank.end(), [](const StepRecord* step) {
    return step != nullptr && !step->roots.empty();
  });
  if (!any) return nullptr;
  steps_.push_back(std::unique_ptr<StepDetails>(new StepDetails(*this, steps_.size())));
  auto& recorded = recorded_.emplace_back(ranks_);
  std::map<Slot, std::map<std::pair<int, Root>, int>> known;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto* step = by_rank[rank];
    if (step == nullptr) continue;
    recorded[rank] = step->recorded_step.value_or(step->step);
    for (const auto& [slot, root] : step->roots) {
      group_of(groups_for(*steps_.back(), slot), known[slot], first_ + static_cast<int>(rank),
               root);
    }
  }
  return steps_.back().get();
}

StepDetails* SeenSteps::add(const std::vector<std::vector<PackedRow>>& by_rank) {
  const bool any =
      std::any_of(by_rank.begin(), by_rank.end(), [](const auto& rows) { return !rows.empty(); });
  if (!any) return nullptr;
  steps_.push_back(std::unique_ptr<StepDetails>(new StepDetails(*this, steps_.size())));
  recorded_.emplace_back(ranks_);
  std::map<Slot, std::map<std::pair<int, Root>, int>> known;
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    const int rank = first_ + static_cast<int>(i);
    for (const auto& row : by_rank[i]) {
      auto& groups = groups_for(*steps_.back(), row.slot);
      if (group_of(groups, known[row.slot], rank, row.root) != 0)
        groups.rows.push_back(row_of(rank, row));
    }
  }
  return steps_.back().get();
}

std::shared_ptr<const std::vector<int>> SeenSteps::positions(int rank, const TensorList& list) {
  const int numbering = numbering_.at(rank);
  for (const auto& known : known_lists_) {
    if (known.numbering == numbering && *known.list == list) return known.positions;
  }
  std::vector<int> positions(tensors_, -1);
  const auto& ids = run_ids_.at(rank);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto own = static_cast<std::size_t>(list[i].tensor);
    if (list[i].tensor >= 0 && own < ids.size() && ids[own] >= 0)
      positions[static_cast<std::size_t>(ids[own])] = static_cast<int>(i);
  }
  if (known_lists_.size() == kMaxKnownLists) known_lists_.erase(known_lists_.begin());
  known_lists_.push_back({numbering, std::make_shared<const TensorList>(list),
                          std::make_shared<const std::vector<int>>(std::move(positions))});
  return known_lists_.back().positions;
}

StepDetails::Row SeenSteps::row_of(int rank, PackedRow packed) {
  auto its_positions = positions(rank, *packed.list);
  return {std::make_shared<const PackedRow>(std::move(packed)), std::move(its_positions)};
}

// Of the steps from `index` on, as many as seem to fit in half of what may be held: the fewer steps
// at once, the more often each record is asked.
void SeenSteps::read(std::size_t index, Slot slot) {
  const std::size_t expected =
      1 + steps_[index]->groups(slot)->readers.size() * tensors_ * kBytesPerTensor;
  const std::size_t count = std::clamp<std::size_t>(most_held_ / 2 / expected, 1, kMaxStepsAtOnce);
  const std::size_t end = std::min(steps_.size(), index + count);

  struct Wanted {
    StepDetails::Groups* groups;
    std::size_t group;
    std::int64_t step;
    std::optional<PackedRow> row;
  };
  std::map<int, std::vector<Wanted>> by_rank;
  for (std::size_t i = index; i < end; ++i) {
    for (auto& groups : steps_[i]->groups_) {
      if (groups.slot != slot || !groups.rows.empty()) continue;
      for (std::size_t group = 0; group < groups.readers.size(); ++group) {
        const int rank = groups.readers[group];
        by_rank[rank].push_back({&groups, group, recorded_[i][index_of(rank)], {}});
      }
    }
  }
  std::vector<std::pair<int, std::vector<Wanted>*>> tasks;
  for (auto& [rank, wanted] : by_rank) tasks.emplace_back(rank, &wanted);
  in_parallel(tasks.size(), [&](std::size_t task) {
    const auto& [rank, all_wanted] = tasks[task];
    std::vector<std::int64_t> numbers;
    for (const auto& wanted : *all_wanted) numbers.push_back(wanted.step);
    std::optional<RecordReader> own;
    auto& reader = index_of(rank) < readers_.size() ? readers_[index_of(rank)] : own;
    if (!reader) reader.emplace(files_.at(rank));
    auto rows = reader->seen(slot, numbers);
    for (std::size_t i = 0; i < rows.size(); ++i) (*all_wanted)[i].row = std::move(rows[i]);
    if (!reader->closed()) reader.reset();
  });

  std::size_t bytes = 0;
  for (auto& [rank, all_wanted] : by_rank) {
    for (auto& [groups, group, step, row] : all_wanted) {
      if (!row) row = PackedRow{slot, {}, std::make_shared<const TensorList>(), {}};
      bytes += row->bytes.size() + sizeof *row;
      groups->rows.resize(groups->readers.size());
      groups->rows[group] = row_of(rank, std::move(*row));
    }
  }
  held_.push_back({index, end, slot, bytes});
  held_bytes_ += bytes;
  let_go();
}

// The oldest first, except those just read.
void SeenSteps::let_go() {
  while (held_bytes_ > most_held_ && held_.size() > 1) {
    const Held oldest = held_.front();
    held_.pop_front();
    held_bytes_ -= oldest.bytes;
    for (std::size_t i = oldest.begin; i < oldest.end; ++i) {
      for (auto& groups : steps_[i]->groups_) {
        if (groups.slot == oldest.slot) groups.rows.clear();
      }
    }
  }
}

}  // namespace ddp_doctor
