// SPDX-License-Identifier: BSD-3-Clause
// Models, and parts of one, that each rank trains for itself on purpose, in programs without a
// wrapper. Nobody declares them: what gives them away is more than one mistake would do.
#pragma once

#include <string>

#include "lib/timeline/replica_groups.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Places on each rank alone what is its own:
// - a parameter of another size on other ranks, in a program that trains on: no reduction can pair
//   it (personalized federated learning). There also what is never reduced.
// - a model that begins apart and is never reduced, beside another one that the program does
//   synchronize (a discriminator for each worker).
// - everything, where ranks begin apart, with other hyper-parameters, and reduce no gradient (a
//   population).
// Returns how that shows, or nothing. `start`: step 0, or null.
std::string place_own_models(const Timeline& timeline, const TimelineStep* start,
                             ReplicaGroups& groups);

}  // namespace ddp_doctor
