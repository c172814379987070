// SPDX-License-Identifier: BSD-3-Clause
// Ranks that train by themselves and meet now and then, as the clients of federated learning do,
// may take different numbers of steps in a round: one has more data. Steps of the same number then
// belong to different rounds. A loop without a wrapper; rounds are told by its collectives, which
// all ranks issue in the same order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// Keeps of each round as many steps as every rank took in it, and returns a note about it; nothing
// where all took as many.
std::optional<std::string> keep_even_rounds(std::vector<RankRecord>& records);

}  // namespace ddp_doctor
