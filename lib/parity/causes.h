// SPDX-License-Identifier: BSD-3-Clause
// What a difference between the ranks and one process looks like, and so where it comes from.
#pragma once

#include <vector>

#include "lib/parity/comparison.h"

namespace ddp_doctor {

// Of a comparison in which something differs: at least one.
std::vector<Finding> causes_of(const Comparison& comparison, int world_size);

}  // namespace ddp_doctor
