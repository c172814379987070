// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/left_out_steps.h"

#include <algorithm>

namespace ddp_doctor {

void leave_out_steps(RankRecord& record, const std::vector<std::int64_t>& numbers) {
  std::erase_if(record.steps, [&](const StepRecord& step) {
    return std::binary_search(numbers.begin(), numbers.end(), step.step);
  });
  const auto now = [&](std::int64_t step) {
    return step - (std::lower_bound(numbers.begin(), numbers.end(), step) - numbers.begin());
  };
  for (auto& step : record.steps) {
    if (!step.recorded_step) step.recorded_step = step.step;
    step.step = now(step.step);
  }
  for (auto& event : record.events) event.step = now(event.step);
  for (auto& call : record.calls) call.step = now(call.step);
  for (auto& fact : record.facts) fact.step = now(fact.step);
  for (auto& site : record.sites) site.step = now(site.step);
}

}  // namespace ddp_doctor
