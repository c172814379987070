// SPDX-License-Identifier: BSD-3-Clause
// Gossip (decentralized SGD): replicas that train separately on purpose, and mix their weights with
// those of a few other ranks. They come closer, and are never equal.
#pragma once

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// In several steps ranks sent each other, or reduced in groups that change, as many elements as
// most of what differs has, outside of forward and backward; and what is sampled of these weights
// lay, before the next update, between the weights that the ranks had after the last one, and was
// no longer the same.
bool mixes_weights(const Timeline& timeline);

}  // namespace ddp_doctor
