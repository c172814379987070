// SPDX-License-Identifier: BSD-3-Clause
// Judges, from outside, whether a job that makes no progress can continue by itself.
//
// That it cannot is proven where each rank is inside a collective (its call log says so) or has
// ended, and none of their processes has run for a while; or where one of them waits for a machine
// that does not acknowledge what it is sent. It is likely where some ranks wait inside a collective
// and the others are idle, for much longer than this program ever paused. A rank that saves,
// evaluates, compiles or is stopped in a debugger is none of these, however long it takes: it uses
// the processor or the disk, or is traced.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp_doctor {

// How long a job may make no progress before it is stopped.
struct Timeouts {
  std::chrono::seconds deadlocked{5};        // a proven deadlock; zero: only `still` stops it
  std::optional<std::chrono::seconds> idle;  // nothing: derived from the longest pause so far
  std::chrono::seconds still{300};           // no progress
  std::chrono::seconds busy{1800};           // no progress, but some process works
};

class StallJudge {
 public:
  using Clock = std::chrono::steady_clock;
  // The process of each rank that is known, nothing where it has ended.
  using Ranks = std::map<int, std::optional<pid_t>>;

  StallJudge(std::filesystem::path folder, Timeouts timeouts)
      : folder_(std::move(folder)), timeouts_(timeouts) {}

  // The job moved after `pause`, in the midst of its training.
  void moved_after(Clock::duration pause) { longest_pause_ = std::max(longest_pause_, pause); }

  // To be asked now and then while nothing moves. `complete`: no rank is on another machine or
  // otherwise unknown. `began`: some rank has a record. Why the job should be ended, as a note for
  // the report, empty where there is nothing to say but that nothing moved; nothing where it should
  // go on.
  std::optional<std::string> why_end(const Ranks& ranks, bool complete, Clock::time_point moved_at,
                                     bool began);
  // How long ranks may do nothing at all while others wait for them.
  std::chrono::seconds idle_limit() const;

 private:
  enum class State { kEnded, kWaits, kIdle, kLives };
  struct Signs {  // of life, as of the last look
    long long processor_ticks = 0;
    long long bytes = 0;
    int looks_running = 0;  // in a row; a thread that only wakes up is seen so once
  };

  State state_of(int rank, pid_t process);
  bool anybody_works();

  std::filesystem::path folder_;
  Timeouts timeouts_;
  Clock::duration longest_pause_{};
  std::map<pid_t, Signs> seen_;
  std::optional<Clock::time_point> proven_since_;
  std::optional<Clock::time_point> idle_since_;
  std::optional<Clock::time_point> unanswered_since_;
  Clock::time_point worked_at_;
};

}  // namespace ddp_doctor
