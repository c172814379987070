// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/common_steps.h"

#include <algorithm>

namespace ddp_doctor {

void keep_common_steps(std::vector<RankRecord>& records, std::int64_t until,
                       std::int64_t ended_ns) {
  for (const auto& record : records)
    until = std::min(until, record.steps.empty() ? -1 : record.steps.back().step);
  const auto later = [&](const auto& noted) { return noted.step > until; };
  for (auto& record : records) {
    std::erase_if(record.steps, later);
    std::erase_if(record.facts, later);
    std::erase_if(record.sites, later);
    std::erase_if(record.events, [&](const Event& event) {
      return event.kind == "error" && event.time_ns >= ended_ns;
    });
    record.calls.clear();
  }
}

}  // namespace ddp_doctor
