// SPDX-License-Identifier: BSD-3-Clause
// Local SGD: replicas that train separately on purpose and average their weights every few steps.
#pragma once

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

inline constexpr char kAveragesWeights[] =
    "the program averages its weights every few steps (local SGD): in between, the ranks differ on "
    "purpose";

// Weights that differed became equal again, after all-reduces of at least as many elements that did
// not synchronize gradients.
bool averages_weights(const Timeline& timeline);

}  // namespace ddp_doctor
