// SPDX-License-Identifier: BSD-3-Clause
// Which ranks hold replicas of the same model if a job trains several, and which parameters are
// replicas at all.
#pragma once

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Fills in Timeline::replicas and Timeline::rank_local, with a note if there are several sets.
//
// The sets are the wrappers' process groups, if these partition the ranks and no two of them start
// with the same model; groups that start with the same model are replicas with a wrong process
// group (DDP112). Without wrappers, models with different shapes whose ranks send each other
// tensors are the stages of a pipeline.
void tell_replicas_apart(Timeline& timeline);

// The process groups of its wrappers, or of one wrapper, if every rank is in exactly one.
std::vector<Ranks> wrapper_groups(const Timeline& timeline, std::optional<int> wrapper = {});

}  // namespace ddp_doctor
