// SPDX-License-Identifier: BSD-3-Clause
// Placements that the user states: [placement] in ddp-doctor.toml, and ddp_doctor.placement() in
// the program (docs/record.md, facts of "stated placement"). They outrank what is inferred.
#pragma once

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// The named dimensions of the program's meshes, and of the one that the user states.
std::vector<Dimension> dimensions_of(const std::map<int, const RankRecord*>& records,
                                     const StatedPlacements& stated);

// By parameter, without the model's label. Adds to `notes` what names nothing.
std::map<std::string, std::vector<Along>> stated_placements(
    const std::map<int, const RankRecord*>& records, const StatedPlacements& stated,
    const std::vector<Dimension>& dimensions, std::vector<std::string>& notes);

// Changes the groups of parameters of which something is stated, unless their placement is
// declared; notes where the two differ.
void place_stated(Timeline& timeline, ReplicaGroups& groups);

}  // namespace ddp_doctor
