// SPDX-License-Identifier: BSD-3-Clause
#include "tool/watch/stall.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/record/call_log.h"
#include "lib/record/writer.h"
#include "tool/system/process_table.h"
#include "tool/watch/connections.h"

namespace ddp_doctor {
namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

// Threads that only wait still wake up now and then.
constexpr long long kTicksOfWaiting = 2;
// Launchers poll their ranks several times a second.
constexpr long long kTicksOfWork = 10;
constexpr long long kBytesOfWork = 1 << 20;
// No program sleeps this long between two collectives.
constexpr seconds kLeastIdle{60};
constexpr int kPausesOfIdle = 20;
// Networks recover: a switch restarts, a route changes.
constexpr seconds kUnanswered{15};

}  // namespace

StallJudge::State StallJudge::state_of(int rank, pid_t process) {
  const auto activity = activity_of(process);
  if (!activity) return State::kEnded;
  Signs now{activity->processor_ticks, activity->bytes};
  Signs all = now;
  for (const pid_t child : descendants_of(process)) {
    if (const auto of_child = activity_of(child)) {
      all.processor_ticks += of_child->processor_ticks;
      all.bytes += of_child->bytes;
    }
  }
  const auto before = seen_.find(process);
  const bool first_look = before == seen_.end();
  const Signs last = first_look ? all : before->second;
  all.looks_running = activity->runs ? last.looks_running + 1 : 0;
  seen_[process] = all;
  const bool ran = first_look || all.processor_ticks - last.processor_ticks > kTicksOfWaiting ||
                   all.looks_running > 1;
  if (ran || !activity->rests) return State::kLives;
  if (activity->sleeps && waits_in(read_calls(calls_file(folder_, rank))) != nullptr)
    return State::kWaits;
  return all.bytes == last.bytes ? State::kIdle : State::kLives;
}

// Any process that was started, rank or not.
bool StallJudge::anybody_works() {
  bool works = false;
  for (const pid_t process : descendants_of(getpid())) {
    const auto activity = activity_of(process);
    if (!activity) continue;
    const auto [last, first_look] =
        seen_.try_emplace(-process, Signs{activity->processor_ticks, activity->bytes});
    works = works || activity->traced ||
            activity->processor_ticks - last->second.processor_ticks > kTicksOfWork ||
            activity->bytes - last->second.bytes > kBytesOfWork;
    last->second = {activity->processor_ticks, activity->bytes};
  }
  return works;
}

seconds StallJudge::idle_limit() const {
  return timeouts_.idle.value_or(
      std::max(kLeastIdle, duration_cast<seconds>(kPausesOfIdle * longest_pause_)));
}

std::optional<std::string> StallJudge::why_end(const Ranks& ranks, bool complete,
                                               Clock::time_point moved_at, bool began) {
  const auto now = Clock::now();
  if (anybody_works()) worked_at_ = now;
  // Importing and compiling may take long.
  const auto busy = began ? timeouts_.busy : std::max(timeouts_.busy, Timeouts().busy);
  if (now - std::max(moved_at, worked_at_) > timeouts_.still || now - moved_at > busy) return "";
  if (timeouts_.deadlocked.count() == 0) return {};

  std::vector<int> waiting;
  std::vector<int> idle;
  bool lives = false;
  for (const auto& [rank, process] : ranks) {
    switch (process ? state_of(rank, *process) : State::kEnded) {
      case State::kWaits:
        waiting.push_back(rank);
        break;
      case State::kIdle:
        idle.push_back(rank);
        break;
      case State::kLives:
        lives = true;
        break;
      case State::kEnded:
        break;
    }
  }
  const bool stuck = !waiting.empty() && !lives;
  const bool proven = stuck && idle.empty() && complete;
  if (!proven) proven_since_.reset();
  if (!stuck) idle_since_.reset();
  if (!stuck) unanswered_since_.reset();
  if (proven && !proven_since_) proven_since_ = now;
  if (stuck && !idle_since_) idle_since_ = now;
  if (proven && now - *proven_since_ >= timeouts_.deadlocked) {
    return fmt::format(
        "stopped after {} s in which every rank waited for another inside a collective",
        timeouts_.deadlocked.count());
  }
  if (!stuck) return {};
  std::optional<std::string> silent;
  for (const int rank : waiting) {
    if (!silent) silent = silent_peer(*ranks.at(rank));
  }
  if (!silent) unanswered_since_.reset();
  if (silent && !unanswered_since_) unanswered_since_ = now;
  if (silent && now - *unanswered_since_ >= kUnanswered) {
    return fmt::format(
        "stopped after {} s in which {} did not acknowledge data sent to it, while {} waited "
        "inside a collective",
        kUnanswered.count(), *silent, ranks_of(waiting));
  }
  if (!idle.empty() && now - *idle_since_ >= idle_limit()) {
    return fmt::format(
        "stopped after {} s in which {} waited inside a collective and {} was idle outside any "
        "collective (--stall-after)",
        idle_limit().count(), ranks_of(waiting), ranks_of(idle));
  }
  return {};
}

}  // namespace ddp_doctor
