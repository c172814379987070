// SPDX-License-Identifier: BSD-3-Clause
// Which ranks hold the same of each parameter: as declared, as the wrappers show, as inferred.
// `start`: step 0, or null.
#pragma once

#include <string>
#include <vector>

#include "lib/timeline/replica_groups.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Tensors whose placement is declared, by something other than a wrapper that replicates them.
// Returns whether meshes side by side hold replicas of one model.
bool place_declared(const Timeline& timeline, const TimelineStep* start, ReplicaGroups& groups);

// Of wrappers with different process groups each replicates over its own, if these are meant to
// hold parts of a layer, and begin apart.
void place_by_wrapper(const Timeline& timeline, const TimelineStep* start, ReplicaGroups& groups);

// What wrappers cover is replicated over their process groups.
void place_wrapped(Timeline& timeline, const std::vector<Ranks>& sets, ReplicaGroups& groups);

// Nobody declared anything and no wrapper replicates, but the ranks work on each sample together:
// they exchange activations in the forward pass, and reduce no gradients over all of them. A
// backward pass that exchanges some, too, is told by the records alone (layout_of). Returns how
// they do it, or nothing.
std::string works_together(const Timeline& timeline, const TimelineStep* start);

// What nobody declared, in a job whose ranks exchange activations. Where shards are DTensors, plain
// parameters are none.
void place_inferred(const Timeline& timeline, const TimelineStep* start, ReplicaGroups& groups);

}  // namespace ddp_doctor
