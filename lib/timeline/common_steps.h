// SPDX-License-Identifier: BSD-3-Clause
// The records of a run whose ranks were, or are, in the midst of a step: as if all of them had been
// written up to the last step that every rank completed. What a rank did after that, others may
// have been about to do.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// Removes later steps, with what was noted in them, and the logs of calls; and errors from
// `ended_ns` on, which came of ranks being ended. At most `until` steps stay.
void keep_common_steps(std::vector<RankRecord>& records, std::int64_t until,
                       std::int64_t ended_ns = std::numeric_limits<std::int64_t>::max());

}  // namespace ddp_doctor
