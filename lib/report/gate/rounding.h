// SPDX-License-Identifier: BSD-3-Clause
// What rounding alone may change: measured by a run that rounds differently, never guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// A difference counts beyond this many times the distance that rounding made. One such distance is
// one draw: over the comparisons of docs/ci.md another was at most a third of this.
inline constexpr double kRoundingTimes = 10.0;

// Distances that rounding alone may reach, up to each step: whatever it changed in one step, later
// steps begin from.
class RoundingLimits {
 public:
  explicit RoundingLimits(const Distances& rounding);

  Distance at(Stage stage, std::int64_t step, const std::string& parameter) const;

 private:
  Distances limits_;
};

struct BeyondRounding {
  Stage stage = Stage::kGradient;
  std::int64_t step = 0;
  std::map<std::string, Distance> parameters;  // of that step and stage
  std::string most;                            // the one that is farthest beyond
  double times = 0.0;                          // it is so many times as far as its limit
};

struct RoundingComparison {
  std::optional<BeyondRounding> first;
  double most = 0.0;  // the largest distance, in parts of its limit
  std::size_t steps = 0;
};
RoundingComparison beyond_rounding(const Distances& seen, const Distances& rounding);

}  // namespace ddp_doctor
