// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/schedule.h"

#include <algorithm>
#include <utility>

namespace ddp_doctor {

void Schedule::wrapper_made() {
  before_ = number_ - 1;
  recorded_ = true;
}

void Schedule::unused(std::vector<int> ids) {
  if (unused_ && *unused_ != ids) graphs_left_ = kGraphs + 1;  // and this step, which counts, too
  unused_ = std::move(ids);
}

void Schedule::next(std::int64_t wanted, int optimizers) {
  if (recorded_) graphs_left_ = std::max(0, graphs_left_ - 1);
  ++number_;
  wanted_ = wanted;
  const std::int64_t count = number_ - before_;
  recorded_ = count <= settings_.warmup || is_wanted() || is_last() ||
              count % settings_.every < std::max(1, optimizers);
}

}  // namespace ddp_doctor
