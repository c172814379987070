// SPDX-License-Identifier: BSD-3-Clause
// DDP108 on a mesh: each rank clipped by a norm of its own, over the parts that it holds.
#pragma once

#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Of shards, scaled after they were reduced, and of replicas, whose gradients then differ by one
// factor for all parameters. At most one finding.
std::vector<Finding> clip_by_own_norm(const Timeline& timeline,
                                      const std::vector<const TimelineStep*>& steps);

}  // namespace ddp_doctor
