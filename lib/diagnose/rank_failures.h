// SPDX-License-Identifier: BSD-3-Clause
// How ranks failed.
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

// Of a rank that failed on its own, not because it lost a peer or timed out.
bool is_own_failure(const std::string& kind);

std::optional<RankFailure> failure_of(const Timeline& timeline, int rank);

// All ranks that failed: those that failed on their own first, then by time.
std::vector<RankFailure> rank_failures(const Timeline& timeline);

// Ranks that were terminated without an error of their own while others waited for them.
std::vector<int> silent_ranks(const Timeline& timeline);

// The program caught, and went on after, the error of a collective that another rank did not take
// part in, after its last complete step.
bool lost_a_peer_unnoticed(const Timeline& timeline);

}  // namespace ddp_doctor
