// SPDX-License-Identifier: BSD-3-Clause
// How ranks came to an end that was not the program's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

struct RankFailure {
  int rank = 0;
  std::int64_t time_ns = 0;
  std::int64_t step = 0;
  std::string phase;
  std::string text;
  std::string kind;  // error_kind(), or "signal"
};

// It fell for a reason of its own, and not because it lost a peer or waited in vain.
bool of_its_own(const RankFailure& failure);

std::optional<RankFailure> failure_of(const Timeline& timeline, int rank);

// Everyone who fell, whoever did so for a reason of its own first, then by time.
std::vector<RankFailure> rank_failures(const Timeline& timeline);

// Ranks that had to be ended, and said nothing, while another waited for them in vain.
std::vector<int> silent_ranks(const Timeline& timeline);

}  // namespace ddp_doctor
