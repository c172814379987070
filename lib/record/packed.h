// SPDX-License-Identifier: BSD-3-Clause
// The data of many tensors at one stage of one step, as one row of the record: a healthy step
// writes and compares a few rows, not one per tensor. docs/record.md describes the layout.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/record/record.h"

namespace ddp_doctor {

// A Usage's yes and no as one number.
namespace usage {
inline constexpr unsigned kUsed = 1, kReachedKnown = 2, kReached = 4, kInOutputKnown = 8,
                          kInOutput = 16, kFrozen = 32, kReplaced = 64, kInOptimizer = 128,
                          kAssigned = 256;
unsigned flags_of(const Usage& usage);
Usage from_flags(int tensor, unsigned flags, int arrivals, int last_backward);
}  // namespace usage

// Which tensors a row is about, in its order.
struct ListedTensor {
  int tensor;
  std::int64_t numel;
  bool operator==(const ListedTensor&) const = default;
};
using TensorList = std::vector<ListedTensor>;

class PackedRow {
 public:
  Slot slot;
  Root root{};
  std::shared_ptr<const TensorList> list;
  std::vector<std::uint8_t> bytes;

  std::size_t size() const { return list->size(); }
  // There are as many bytes as its tensors need; only then may the others be called.
  bool fits() const;

  bool has_nonfinite() const { return bytes.size() > 32 * size(); }  // of a row of digests

  // Of the tensor at `position` of the list, in a row of that kind.
  TensorDigest digest(std::size_t position) const;
  SampledValues sample(std::size_t position) const;
  Usage usage(std::size_t position) const;
};

// A row for each slot in which `step` has something, tensors in the order of their ids. Throws
// Error if a tensor comes twice in one.
std::vector<PackedRow> pack(const StepRecord& step);
// Adds what `row` says to `step`.
void unpack(const PackedRow& row, StepRecord& step);

}  // namespace ddp_doctor
