// SPDX-License-Identifier: BSD-3-Clause
// Questions about a timeline that several rules share, and text for their messages.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// The gradients of the step were examined, not only its weights: the weights of the last step are
// examined again when the program ends, and ranks may end in different steps.
bool gradients_examined(const Timeline& timeline, const TimelineStep& step, int rank);
// Every rank examined the step's gradients, or none did.
bool gradients_comparable(const Timeline& timeline, const TimelineStep& step);

// Steps that every rank recorded and examined, without step 0.
std::vector<const TimelineStep*> complete_steps(const Timeline& timeline);

// Ids of the parameters whose bits at `stage` must be the same on every rank; before the first
// step, frozen parameters too.
std::vector<int> compared(const Timeline& timeline, const TimelineStep& step, Stage stage);

// Ids of the trainable parameters whose bits at `stage` differ across ranks; a tensor that only
// some ranks have counts as different.
std::vector<int> differing(const Timeline& timeline, const TimelineStep& step, Stage stage);

// Ids of the trainable parameters whose gradient at optimizer.step is present and equal on every
// rank.
std::vector<int> agreeing(const Timeline& timeline, const TimelineStep& step);

// The gradient of a rank's own data, before it was synchronized; nothing if it was not recorded.
std::optional<TensorDigest> local_gradient(const Timeline& timeline, const TimelineStep& step,
                                           int rank, int tensor);
// The local gradients differ across ranks, so if they are equal at optimizer.step, they were
// synchronized.
bool local_gradients_differ(const Timeline& timeline, const TimelineStep& step, int tensor);

// Collectives of `rank` between the last backward and optimizer.step.
std::vector<const Collective*> calls_before_step(const TimelineStep& step, int rank);
// Some collective of the program, larger than a metric, came between the backward passes and the
// end of optimizer.step(): it may have synchronized gradients.
bool synchronizes_by_hand(const StepRecord& step);
// The collectives by which a program may synchronize its gradients: those, and without a wrapper
// also those that its hooks issue while gradients arrive. As the lowest rank has them.
std::vector<const Collective*> synchronizing_calls(const Timeline& timeline,
                                                   const TimelineStep& step);

// Ids of the trainable parameters that `rank` did not use in `step`.
std::set<int> unused(const Timeline& timeline, const TimelineStep& step, int rank);
std::set<int> unused_on_every_rank(const Timeline& timeline, const TimelineStep& step);

// Another optimizer stepped after the last backward, which brought no gradient to this one's
// parameters: an outer optimizer over many steps of an inner one, whose gradients are set by hand.
bool is_outer_step(const Timeline& timeline, const TimelineStep& step);

// The wrapper's options let a step finish although some parameters are unused.
bool wrapper_expects_unused(const Timeline& timeline);

// The parameter with that index; nothing if there is none.
std::optional<int> parameter_at(const Timeline& timeline, int ddp_index);

// The user's line where `what` (record.h, Site) first happened.
std::optional<Where> where(const Timeline& timeline, const std::string& what);
// The user's line where the optimizer of that step stepped, or that of the first step.
std::optional<Where> where_stepped(const Timeline& timeline, std::optional<std::int64_t> step = {});

// The wrapper's communication hook, by its name in the program; nothing if it has none.
std::optional<std::string> comm_hook_of(const Timeline& timeline);

// The class of the wrapped module, or "model" if it is unknown.
std::string model_of(const Timeline& timeline);

FindingParameter parameter_of(const Timeline& timeline, int tensor);
template <class Ids>
std::vector<FindingParameter> parameters_of(const Timeline& timeline, const Ids& tensors) {
  std::vector<FindingParameter> parameters;
  for (int tensor : tensors) parameters.push_back(parameter_of(timeline, tensor));
  return parameters;
}

// "orphan.weight (index 0) and orphan.bias (index 1)"; long lists end with the number omitted.
std::string list_of(const std::vector<FindingParameter>& parameters, std::size_t max = 6);
// "rank 1", "ranks 0 and 2"; of many, "ranks 0-63,70"
std::string ranks_of(const std::vector<int>& ranks);
// "1 gradient", "3 gradients"
std::string count_of(std::size_t count, const std::string& thing);

}  // namespace ddp_doctor
