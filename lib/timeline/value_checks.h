// What only the kept values tell: by how much weights differ, and whether the synchronized gradient
// is the mean of the local ones.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "lib/record/reader.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Readers of the ranks that have a record.
using Readers = std::map<int, RecordReader>;

// By rank: a tensor's id in that rank's record, or -1.
using OwnIds = std::map<int, std::vector<int>>;

// Fills in the drift of `step`; without readers, only one of zero.
void compute_drift(const Timeline& timeline, TimelineStep& step, const OwnIds& own_ids,
                   const Readers* readers);

// Nothing where values are missing. A rank without a local gradient contributes zeros, as
// DistributedDataParallel has it.
std::optional<MeanCheck> check_mean(const Timeline& timeline, const TimelineStep& step,
                                    const OwnIds& own_ids, const Readers& readers);

}  // namespace ddp_doctor
