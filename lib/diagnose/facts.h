// SPDX-License-Identifier: BSD-3-Clause
// What several rules ask of a timeline, and how they name what they found.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

std::vector<int> all_ranks(const Timeline& timeline);

// More was seen of the step than weights: those of the last one are looked at again when the
// program ends, and that is not the same one on every rank where ranks count steps otherwise.
bool gradients_looked_at(const Timeline& timeline, const TimelineStep& step, int rank);
// By every rank, or by none.
bool gradients_comparable(const Timeline& timeline, const TimelineStep& step);

// Steps that every rank recorded and looked at alike, without step 0.
std::vector<const TimelineStep*> complete_steps(const Timeline& timeline);

// Ids of the parameters whose bits at `stage` are to be the same on every rank; before the first
// step also of those that do not train.
std::vector<int> compared(const Timeline& timeline, const TimelineStep& step, Stage stage);

// Ids of the trainable parameters whose bits at `stage` are not the same on every rank; one that
// only some ranks have counts as different.
std::vector<int> differing(const Timeline& timeline, const TimelineStep& step, Stage stage);

// Ids of the trainable parameters whose gradient at optimizer.step every rank has, and all the
// same.
std::vector<int> agreeing(const Timeline& timeline, const TimelineStep& step);

// What a rank's own data gave: the gradient before anybody synchronized it. Nothing where that was
// not seen.
std::optional<TensorDigest> local_gradient(const Timeline& timeline, const TimelineStep& step,
                                           int rank, int tensor);
// The local gradients of some ranks differ, so that equal ones at optimizer.step were synchronized.
bool local_gradients_differ(const Timeline& timeline, const TimelineStep& step, int tensor);

// Collectives of `rank` between the last backward and optimizer.step.
std::vector<const Collective*> calls_before_step(const TimelineStep& step, int rank);

// Ids of the trainable parameters that `rank` did not use in `step`.
std::set<int> unused(const Timeline& timeline, const TimelineStep& step, int rank);
std::set<int> unused_on_every_rank(const Timeline& timeline, const TimelineStep& step);

// The wrapper's options let a step finish although some parameters are unused.
bool wrapper_expects_unused(const Timeline& timeline);

// The parameter with that index; nothing if there is none.
std::optional<int> parameter_at(const Timeline& timeline, int ddp_index);

// The user's line where `what` (record.h, Site) first happened.
std::optional<Where> where(const Timeline& timeline, const std::string& what);

// The class of the wrapped module, or "model" where it is not known.
std::string model_of(const Timeline& timeline);

FindingParameter parameter_of(const Timeline& timeline, int tensor);
template <class Ids>
std::vector<FindingParameter> parameters_of(const Timeline& timeline, const Ids& tensors) {
  std::vector<FindingParameter> parameters;
  for (int tensor : tensors) parameters.push_back(parameter_of(timeline, tensor));
  return parameters;
}

// "orphan.weight (index 0) and orphan.bias (index 1)"; long lists are cut with the number left out.
std::string list_of(const std::vector<FindingParameter>& parameters, std::size_t most = 6);
// "rank 1", "ranks 0 and 2"; of many, "ranks 0-63,70"
std::string ranks_of(const std::vector<int>& ranks);
// "1 gradient", "3 gradients"
std::string count_of(std::size_t count, const std::string& thing);

}  // namespace ddp_doctor
