// SPDX-License-Identifier: BSD-3-Clause
// Which ranks hold replicas of one model, where a job trains several side by side, and which
// parameters are replicas at all.
#pragma once

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Fills in Timeline::replicas and Timeline::rank_local, with a note where there are several sets.
//
// They are told by the wrappers' process groups, where these part the ranks and no two of them
// begin with the same model; groups that begin alike are replicas that somebody forgot to join
// (DDP112). Without wrappers, by models of other shapes whose ranks send each other tensors: the
// stages of a pipeline.
void tell_replicas_apart(Timeline& timeline);

// No module that lives holds it: the probes name such a tensor by its position in the optimizer.
bool is_in_no_module(const TensorInfo& tensor);

}  // namespace ddp_doctor
