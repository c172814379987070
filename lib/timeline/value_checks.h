// SPDX-License-Identifier: BSD-3-Clause
// What only the kept values tell: by how much weights differ, and whether the synchronized gradient
// is the mean of the local ones. Values are read a rank at a time: however many ranks there are, a
// few models fit in memory.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Where the values that were kept are.
struct KeptTensors {
  const std::map<int, std::filesystem::path>& files;  // records by rank
  const std::map<int, std::vector<int>>& own_ids;     // by rank: a tensor's id in its record, or -1
};

// Fills in the drift of `step`; without values, only one of zero.
void compute_drift(const Timeline& timeline, TimelineStep& step, const KeptTensors* kept);

// Nothing where values are missing. A rank without a local gradient contributes zeros, as
// DistributedDataParallel has it.
std::optional<MeanCheck> check_mean(const Timeline& timeline, const TimelineStep& step,
                                    const KeptTensors& kept);

}  // namespace ddp_doctor
