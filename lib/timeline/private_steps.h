// SPDX-License-Identifier: BSD-3-Clause
// Steps that some ranks take alone, with an optimizer that the others do not have: rank 0 fits a
// calibration before the others join, or a probe for an evaluation. They are no part of the
// data-parallel training, and would shift that rank's steps against the others'.
#pragma once

#include <string>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// Takes them, their optimizers and their parameters out of the records, numbers what is left as
// the others do, and returns what there is to say of it. An optimizer counts as private only if the
// rank also has every optimizer of the rank that has fewest, and if nothing that it holds is
// wrapped, held by another one, or known to that other rank.
std::vector<std::string> leave_out_private_steps(std::vector<RankRecord>& records);

}  // namespace ddp_doctor
