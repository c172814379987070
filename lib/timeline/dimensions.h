// SPDX-License-Identifier: BSD-3-Clause
// Along what the ranks of a job lie: the dimensions of its meshes, and what its process groups
// show.
#pragma once

#include <vector>

#include "lib/placement/placement.h"

namespace ddp_doctor {

class Timeline;

// Timeline::dimensions, from all else.
std::vector<Dimension> dimensions_of(const Timeline& timeline);

// "tp {0, 1}, {2, 3}"
std::string in_words(const Dimension& dimension);

}  // namespace ddp_doctor
