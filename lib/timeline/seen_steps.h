// SPDX-License-Identifier: BSD-3-Clause
// The tensor data of all steps of a run: read from the records on demand, a few steps ahead, and
// released when it uses too much memory.
//
// Reading is not thread-safe, although it uses several threads itself.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/record/reader.h"
#include "lib/timeline/step_details.h"

namespace ddp_doctor {

class SeenSteps {
 public:
  static constexpr std::size_t kMaxHeld = std::size_t{384} << 20;

  // `run_ids`: by rank, the run's id of each tensor of its record; -1: not to be looked at. Of the
  // `ranks` from `first` on.
  // `tensors`: of the run. `files`: the records, by rank; empty if all rows are added. `most_held`:
  // bytes of rows to hold in memory, beyond those that are read at once.
  SeenSteps(std::map<int, std::vector<int>> run_ids, int first, std::size_t ranks,
            std::size_t tensors, std::map<int, std::filesystem::path> files,
            std::size_t most_held = kMaxHeld);
  ~SeenSteps();
  SeenSteps(const SeenSteps&) = delete;
  SeenSteps& operator=(const SeenSteps&) = delete;

  // A step of the run, in their order. By rank, from the first on: its own step, null where it has
  // none. Null if no rank saw anything in it.
  StepDetails* add(const std::vector<const StepRecord*>& by_rank);
  // The same, from rows at hand.
  StepDetails* add(const std::vector<std::vector<PackedRow>>& by_rank);
  // All ranks number their tensors identically, so equal roots mean equal data.
  bool number_alike() const;

 private:
  friend class StepDetails;
  struct Held {
    std::size_t begin, end;  // steps
    Slot slot;
    std::size_t bytes;
  };

  void read(std::size_t index, Slot slot);
  void let_go();
  StepDetails::Groups& groups_for(StepDetails& step, Slot slot) const;
  std::uint32_t group_of(StepDetails::Groups& groups, std::map<std::pair<int, Root>, int>& known,
                         int rank, const Root& root) const;
  std::shared_ptr<const std::vector<int>> positions(int rank, const TensorList& list);
  StepDetails::Row row_of(int rank, PackedRow packed);

  std::map<int, std::vector<int>> run_ids_;
  std::map<int, int>
      numbering_;  // by rank: ranks with the same value number their tensors identically
  std::size_t index_of(int rank) const { return static_cast<std::size_t>(rank - first_); }

  int first_;
  std::size_t ranks_;
  std::size_t tensors_;
  std::map<int, std::filesystem::path> files_;
  std::vector<std::optional<RecordReader>>
      readers_;  // of the first ranks: closed records stay open
  std::size_t most_held_;
  std::vector<std::unique_ptr<StepDetails>> steps_;
  std::vector<std::vector<std::int64_t>> recorded_;  // by step and rank: its number in the record
  struct Known {
    int numbering;
    std::shared_ptr<const TensorList> list;
    std::shared_ptr<const std::vector<int>> positions;
  };
  std::vector<Known> known_lists_;
  std::deque<Held> held_;
  std::size_t held_bytes_ = 0;
};

}  // namespace ddp_doctor
