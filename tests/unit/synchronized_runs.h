// SPDX-License-Identifier: BSD-3-Clause
// Runs that synchronize, to be changed by a test.
#pragma once

#include <string>

#include "tests/unit/run_builder.h"

namespace ddp_doctor {

inline RunBuilder healthy(int world_size = 2) {
  return RunBuilder(world_size, {"body.weight", "head.weight"}, 3)
      .wrapper({{"find_unused_parameters", "0"}})
      .trace("F0+ B0+", 1);
}

inline RunBuilder by_hand(int world_size = 2) {
  return RunBuilder(world_size, {"body.weight", "head.weight"}, 3).trace("Bu Cg*2", 1);
}

// From `step` on no gradient is averaged, and weights part.
inline RunBuilder& apart(RunBuilder& run, int step = 1) {
  for (int tensor : {0, 1})
    run.differ(1, tensor, Stage::kGradient, step).differ(1, tensor, Stage::kWeight, step);
  return run;
}

inline Collective all_reduce(const std::string& target, std::int64_t numel = 1) {
  return {"all_reduce", "sum", "float32", numel, "", "before-step", target, "train.py", 31, 1};
}

}  // namespace ddp_doctor
