// SPDX-License-Identifier: BSD-3-Clause
// Parameters that ranks have for themselves, so that no other rank must hold the same.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "lib/timeline/replica_groups.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Ids of the experts that every rank has for itself although all begin alike, as one seed makes
// them. Where some begin apart, the weights show who holds the same. `start`: step 0, or null.
std::set<int> experts_of_one_seed(const Timeline& timeline, const TimelineStep* start);

// Ids for Timeline::rank_local: experts, what is placed on each rank alone, and what begins apart
// where no wrapper, or no module, covers it.
std::set<int> rank_local_parameters(const Timeline& timeline, const TimelineStep* start,
                                    const ReplicaGroups& groups);

// Of a parameter that some rank's first step did not know yet, as it trained something else before:
// the step before which its replicas' weights differ; nothing if they do not.
std::optional<std::int64_t> begins_apart_later(const Timeline& timeline, int tensor);

// Ids of the parameters of a sharded optimizer that the program wrote itself.
std::set<int> updated_by_some(const Timeline& timeline);

// DistributedDataParallel was told to leave it alone: _ddp_params_and_buffers_to_ignore,
// delay_all_reduce_named_params.
bool is_ignored(const Timeline& timeline, const TensorInfo& tensor);

// No existing module holds it: the probes name such a tensor by its position in the optimizer.
bool is_in_no_module(const TensorInfo& tensor);

}  // namespace ddp_doctor
