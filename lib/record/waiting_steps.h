// SPDX-License-Identifier: BSD-3-Clause
// Steps that were not examined, of which there may be hundreds per second, wait for the record's
// next transaction in a small mapped file, rank-NNNNN.steps. It survives the process, and readers
// read it too.
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

  // False if this step cannot wait: it was examined, or there is no more room.
  bool add(const StepRecord& step);
  // In the order in which they were added.
  const std::vector<StepRecord>& steps() const { return steps_; }
  // Call it after they were written to the record.
  void clear() noexcept;

  static constexpr std::size_t kBytes = kMax * 512;

 private:
  MappedFile map_;
  std::vector<StepRecord> steps_;
};

// The steps that follow `last` without a gap; empty if there is no such file.
std::vector<StepRecord> read_waiting_steps(const std::filesystem::path& file, std::int64_t last);

}  // namespace ddp_doctor
