// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a run did when, from their records: when each step began, how much of it was
// the program's own time and how much the examination's, the forwards, backwards and collectives
// that their call logs still have, and where each rank was when it ended.
//
// The call log and the record use different clocks. Their offset is not guessed: a call of a step
// lies between the begin and end of that step, and over all steps this leaves an interval;
// `uncertainty_ms` is half of it. If the interval is empty, calls are omitted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"

namespace ddp_doctor {

class Timeline;

struct Phases {
  static constexpr std::size_t kMaxRanks = 12;
  static constexpr std::size_t kMaxBlocks = 100;  // of steps, for each rank

  // Times are milliseconds since the first of these steps began, by the clock of each machine.
  struct Block {
    std::int64_t first = 0;  // steps
    std::int64_t last = 0;
    double began_ms = 0.0;
    double own_ms = 0.0;    // of the program
    double probe_ms = 0.0;  // of the examination, spread over the step
  };
  enum class Activity { kForward, kBackward, kCollective };
  struct Call {
    Activity activity = Activity::kForward;
    std::int64_t step = 0;
    double from_ms = 0.0;
    double to_ms = 0.0;
    bool returned = true;
    std::string name;
  };
  struct End {
    double at_ms = 0.0;
    std::int64_t step = 0;  // under way
    std::string phase;      // a name of progress.h; empty: unknown
    std::string how;        // "raised", "was killed by signal 9", ...
  };
  struct Rank {
    int rank = 0;
    std::vector<Block> blocks;
    std::vector<Call> calls;  // if a block is one step; also of the step that never ended
    std::optional<End> end;   // if it did not finish its program
  };

  std::vector<Rank> ranks;           // ascending
  std::size_t ranks_seen = 0;        // in all, of which `ranks` are shown
  std::int64_t steps_per_block = 1;  // up to
  double uncertainty_ms = 0.0;       // of calls, the maximum over ranks
};

// Of many ranks those that failed, then those that findings name, then the lowest.
Phases phases_of(const Timeline& timeline, const std::vector<Finding>& findings);

}  // namespace ddp_doctor
