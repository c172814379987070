// SPDX-License-Identifier: BSD-3-Clause
// DDP107: what synchronized gradients are multiples of.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

constexpr double kScaleTolerance = 0.01;  // compression to half precision stays well below
constexpr std::size_t kMinValues = 8;     // values that must agree on k

// One sampled element: the synchronized value, as a multiple of the mean of the local ones.
struct Multiple {
  int id = 0;
  double factor = 0.0;
  bool everywhere = false;  // no rank's local value is zero
};

// What is sampled of a gradient; nothing where it is not.
using SampleOf = std::function<std::optional<Sample>(int rank, int id)>;

// Of one step: `result` on the first rank, by the mean of what each rank had of its `own`. Values
// far below the largest are ignored: the rounding error of their sums is too large.
std::vector<Multiple> multiples_of(const Timeline& timeline, const TimelineStep& step,
                                   const SampleOf& result, const SampleOf& own);

// Of its synchronization; `by_hand`: one that the program wrote.
std::vector<Multiple> multiples_in(const Timeline& timeline, const TimelineStep& step,
                                   bool by_hand);

// k, if it is one for all of them.
std::optional<double> factor_of(const std::vector<Multiple>& multiples);

bool near(double k, double factor);

// The collectives are large enough to have synchronized all gradients, not only a metric.
bool all_gradients_by_hand(const Timeline& timeline, const TimelineStep& step);

// Replicas of one stage of a pipeline, the others of which are on other ranks.
bool is_one_stage(const Timeline& timeline);

// The losses were divided before backward, by the world size or by the total of all ranks (samples,
// tokens): then a sum is correct. Factors that differ across ranks are weights if they add up to 1;
// otherwise they are each rank's own, and the result is a sum of local means.
bool divided_before(const Timeline& timeline, const TimelineStep& step, double k);

}  // namespace ddp_doctor
