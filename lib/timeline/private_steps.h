// SPDX-License-Identifier: BSD-3-Clause
// Steps that some ranks take alone, with an optimizer that the others do not have: rank 0 fits a
// calibration before the others join, or a linear probe for an evaluation. They are not part of the
// data-parallel training, and would shift that rank's step numbers.
#pragma once

#include <string>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// Removes these steps, their optimizers and their parameters from the records, renumbers the rest,
// and returns notes about it. An optimizer counts as private only if the rank also has every
// optimizer of the rank that has fewest, and if nothing that it holds is wrapped, held by another
// one, or known to that other rank.
std::vector<std::string> leave_out_private_steps(std::vector<RankRecord>& records);

}  // namespace ddp_doctor
