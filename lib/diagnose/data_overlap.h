// SPDX-License-Identifier: BSD-3-Clause
// Whether ranks' parts of the data overlap: samples that several of them were given in one pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

struct DataOverlap {
  std::vector<int> ranks;       // two of them
  std::int64_t first_step = 0;  // of the pass
  std::int64_t last_step = 0;   // that was seen of it
  std::size_t common = 0;       // samples
  std::size_t each = 0;         // that the rank with fewer was given
};

// The first pass in which a sample came twice on no rank, and many came to two ranks; nothing if
// there is none.
std::optional<DataOverlap> overlap_of_data(const Timeline& timeline);

}  // namespace ddp_doctor
