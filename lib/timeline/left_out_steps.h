// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// Removes these steps (numbers, ascending) from the record, and renumbers the rest: as ranks count
// that do not have them.
void leave_out_steps(RankRecord& record, const std::vector<std::int64_t>& numbers);

}  // namespace ddp_doctor
