// SPDX-License-Identifier: BSD-3-Clause
// What a program computed when it was last known to be right: the bits of every gradient and
// weight, and which parameters the loss depended on, by step, parameter and rank. Kept in the
// repository, so that a commit that changes any of it is reported.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

class Baseline {
 public:
  static Baseline of(const RunReport& run);

  // Throws Error if the file is missing, not ours, or cannot be written.
  static Baseline load(const std::filesystem::path& file);
  void save(const std::filesystem::path& file) const;

  // DDP602 if the loss depends on other parameters than in the baseline, DDP601 if bits differ;
  // each with the first step and the parameters that do so there. Empty: all that both have is
  // equal. Throws Error if they have nothing in common to compare (another number of ranks, no
  // common step).
  std::vector<Finding> differences(const RunReport& run) const;

 private:
  int world_size_ = 1;
  std::string torch_;
  Fingerprint fingerprint_{Fingerprint::Steps{}};
};

}  // namespace ddp_doctor
