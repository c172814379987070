// SPDX-License-Identifier: BSD-3-Clause
// DDP107: gradients that are not the mean in other ways than all of them by one synchronization.
#pragma once

#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

using ExaminedSteps = std::vector<const TimelineStep*>;

// A gradient that is reduced twice, because two modules share it; a bucket of a communication hook
// that is not divided.
std::vector<Finding> some_scaled(const Timeline& timeline, const ExaminedSteps& steps,
                                 bool by_hand);

// fully_shard divides by a factor that the program set, instead of by the number of ranks that have
// data of their own. Its reductions themselves are not seen.
std::vector<Finding> divided_by_its_factor(const Timeline& timeline, const ExaminedSteps& steps);

// The reducer's mean is divided by the number of ranks again, or multiplied by it, in every step.
// No correct program does that but to make up for a factor of its loss: it has none.
std::vector<Finding> scaled_after_reducer(const Timeline& timeline, const ExaminedSteps& steps);

// The program sums gradients over the ranks after several micro-batches of a step, each time with
// what it has summed before.
std::vector<Finding> summed_again(const Timeline& timeline, const ExaminedSteps& steps);

}  // namespace ddp_doctor
