// SPDX-License-Identifier: BSD-3-Clause
// The tensor data of one step, by rank. Ranks with equal roots share one row, and a row is read on
// demand: a healthy step needs one row for all ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lib/record/packed.h"

namespace ddp_doctor {

class SeenSteps;

class StepDetails {
 public:
  // Nothing if it was not recorded.
  std::optional<TensorDigest> digest(int rank, int tensor, Stage stage) const;
  std::optional<Sample> sample(int rank, int tensor, Stage stage) const;
  std::optional<Usage> usage(int rank, int tensor) const;

  // Some rank has it.
  bool any(Slot slot) const { return groups(slot) != nullptr; }
  // All of `ranks` have it, with the same data for the same tensors.
  bool same_everywhere(Slot slot, const std::vector<int>& ranks) const;
  // All of them have it, and no two are equal, although they number their tensors identically.
  bool different_everywhere(Slot slot, const std::vector<int>& ranks) const;
  // The first of them with the same data; `rank` itself if it has none.
  int like(int rank, Slot slot, const std::vector<int>& ranks) const;

 private:
  friend class SeenSteps;

  struct Row {
    std::shared_ptr<const PackedRow> packed;
    std::shared_ptr<const std::vector<int>> positions;  // by tensor of the run; -1: not in the row
  };
  // Ranks of one group saw the same.
  struct Groups {
    Slot slot;
    std::vector<std::uint32_t> of_rank;  // from 1; 0: this rank has nothing there
    std::vector<int> readers;            // by group: a rank of it
    std::vector<Row> rows;               // by group; empty until requested
  };
  struct Place {
    const PackedRow* row = nullptr;
    std::size_t position = 0;
  };

  StepDetails(SeenSteps& owner, std::size_t index) : owner_(owner), index_(index) {}
  const Groups* groups(Slot slot) const;
  std::uint32_t group_of(const Groups& groups, int rank) const;  // from 1; 0: none
  std::optional<Place> find(int rank, int tensor, Slot slot) const;

  SeenSteps& owner_;
  std::size_t index_;  // among the steps of the run
  std::vector<Groups> groups_;
};

}  // namespace ddp_doctor
