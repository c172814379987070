// SPDX-License-Identifier: BSD-3-Clause
// Steps that nobody looked at, of which there may be hundreds in a second, wait for the record's
// next transaction in a small mapped file, rank-NNNNN.steps: it survives the death of the process,
// and readers take them from there.
#pragma once

#include <filesystem>
#include <vector>

#include "lib/record/mapped_file.h"
#include "lib/record/record.h"

namespace ddp_doctor {

class WaitingSteps {
 public:
  static constexpr std::size_t kMax = 16;
  static constexpr std::size_t kLongestTrace = 367;

  // Creates or truncates `file`; throws Error if that is impossible.
  explicit WaitingSteps(const std::filesystem::path& file) : map_(file, kBytes) {}

  // False if this step cannot wait: something of it was looked at, or there is no more room.
  bool add(const StepRecord& step);
  // In the order in which they came.
  const std::vector<StepRecord>& steps() const { return steps_; }
  // They are in the record now.
  void clear() noexcept;

  static constexpr std::size_t kBytes = kMax * 512;

 private:
  MappedFile map_;
  std::vector<StepRecord> steps_;
};

// Those that follow `last` without a gap; none where there is no such file.
std::vector<StepRecord> read_waiting_steps(const std::filesystem::path& file, std::int64_t last);

}  // namespace ddp_doctor
