// SPDX-License-Identifier: BSD-3-Clause
// Jobs that train several models side by side: which ranks hold replicas of one of them.
#pragma once

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Fills in Timeline::replicas, with a note where there are several sets. They are told by the
// wrappers' process groups, where these part the ranks and no two of them begin with the same
// model. Groups that begin alike are replicas that somebody forgot to join (DDP112).
void tell_replica_sets_apart(Timeline& timeline);

}  // namespace ddp_doctor
