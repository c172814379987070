// SPDX-License-Identifier: BSD-3-Clause
// When the ranks of a run did what, from their records: when each step began, how much of it was
// the program's own time and how much the examination's, the forwards, backwards and collectives
// that their call logs still have, and where each rank was when it came to its end.
//
// The call log has another clock than the record. How far the two are apart is not guessed: a call
// of a step lies between that step's begin and its end, and over all steps this leaves an interval,
// whose half is `uncertainty_ms`. Where it is empty, calls are left out.
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
    double probe_ms = 0.0;  // of the examination, which is spread over the step
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
    std::string phase;      // a name of progress.h; empty: not known
    std::string how;        // "raised", "was killed by signal 9", ...
  };
  struct Rank {
    int rank = 0;
    std::vector<Block> blocks;
    std::vector<Call> calls;  // where a block is one step, and of the step that never ended
    std::optional<End> end;   // where it did not come to the end of its program
  };

  std::vector<Rank> ranks;           // ascending
  std::size_t ranks_seen = 0;        // of which these are the ones to be shown
  std::int64_t steps_per_block = 1;  // up to
  double uncertainty_ms = 0.0;       // of calls, the largest of all ranks
};

// Of many ranks those that came to grief, then those that findings name, then the lowest.
Phases phases_of(const Timeline& timeline, const std::vector<Finding>& findings);

}  // namespace ddp_doctor
