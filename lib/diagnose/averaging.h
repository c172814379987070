// SPDX-License-Identifier: BSD-3-Clause
// Local SGD: replicas that train separately on purpose and average their weights every few steps.
#pragma once

#include <set>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

struct Averaging {
  // Parameters that differed and became equal again, after all-reduces of at least as many elements
  // that did not synchronize gradients: most of what ever differed.
  std::set<int> averaged;
  std::set<int> left_out;  // that never did, while others were averaged twice
};

Averaging averaging_of(const Timeline& timeline);

// What is left out are the layers that have buffers, all of them and no others: each rank keeps its
// own normalization, as FedBN does.
bool keeps_normalization_local(const Timeline& timeline, const Averaging& averaging);

// Why the ranks differ on purpose: local SGD, or gossip (gossip.h). Null if they do not.
const char* why_apart(const Timeline& timeline);

}  // namespace ddp_doctor
