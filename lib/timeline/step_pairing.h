// SPDX-License-Identifier: BSD-3-Clause
// Ranks are compared step by step, by the numbers of their optimizer steps. This is where equal
// numbers stop being the same step.
//
// Reductions pair by their order: the k-th of one rank runs together with the k-th of every other.
// A step that ranks take after different numbers of reductions is not one step of all of them.
// Inside torch.distributed.algorithms.Join ranks may make different numbers of steps on purpose,
// while those that have finished shadow the others: what follows has other numbers on each rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// From `step` on, steps with equal numbers are not compared.
struct Unpaired {
  std::int64_t step = 0;
  bool join = false;                       // on purpose
  std::map<int, std::int64_t> reductions;  // before that step, by rank; empty with `join`

  std::string in_words() const;  // "rank 0 made step 5 after 9 reductions, rank 1 after 10"
};

// Removes the steps of `records` that cannot be paired; nothing if all can.
std::optional<Unpaired> keep_paired_steps(std::vector<RankRecord>& records);

}  // namespace ddp_doctor
