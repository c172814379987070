// SPDX-License-Identifier: BSD-3-Clause
// What a program computed when it was last known to be right: the bits of every gradient and
// weight, and which parameters the loss depended on, by step, parameter and rank. Kept in the
// repository, so that a commit that changes any of it is reported.
//
// Another processor, torch or number of threads gives other bits. So it may also hold norms and a
// few elements, and how far rounding alone moves these: then a run is compared with them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// What a run may differ by from its baseline.
enum class Tolerance { kBits, kMeasured };

class Baseline {
 public:
  // With `rounding`, the distances of a run that rounds differently, it can be compared by these.
  // Throws Error if the two runs are so far apart that the baseline would tell nothing.
  static Baseline of(const RunReport& run, const std::optional<Distances>& rounding = {});

  // Throws Error if the file is missing, not ours, or cannot be written.
  static Baseline load(const std::filesystem::path& file);
  void save(const std::filesystem::path& file) const;

  Tolerance tolerance() const { return rounding_ ? Tolerance::kMeasured : Tolerance::kBits; }

  struct Comparison {
    // DDP602 if the loss depends on other parameters than in the baseline, DDP601 if values differ
    // by more than is tolerated; each with the first step and the parameters that do so there.
    std::vector<Finding> differences;
    std::string note;  // what was tolerated; empty if nothing was
  };
  // Throws Error if they have nothing in common to compare (another number of ranks, no common
  // step).
  Comparison compare(const RunReport& run, Tolerance tolerance) const;

 private:
  int world_size_ = 1;
  std::string torch_;
  Fingerprint fingerprint_{Fingerprint::Steps{}};
  Magnitudes magnitudes_{Magnitudes::Steps{}};  // without rounding_: none
  std::optional<Distances> rounding_;
};

}  // namespace ddp_doctor
