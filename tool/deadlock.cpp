#include "tool/deadlock.h"

#include <algorithm>

#include "lib/record/call_log.h"
#include "lib/record/writer.h"
#include "tool/process_table.h"

namespace ddp_doctor {
namespace {

// Threads that only wait wake up now and then.
constexpr long long kTicksOfWaiting = 2;

// The last call has begun, has not returned, and is one that waits for other ranks.
bool in_a_collective(const std::filesystem::path& calls) {
  const auto log = read_calls(calls);
  if (log.empty() || log.back().end_ns != 0) return false;
  const auto& call = log.back();
  return call.position > 0 || !call.op.starts_with("ddp.forward");
}

}  // namespace

bool Deadlock::waits(int rank, pid_t process) {
  const auto activity = activity_of(process);
  if (!activity || !activity->sleeps) return false;
  const auto before = processor_time_.find(rank);
  const bool ran = before == processor_time_.end() ||
                   activity->processor_ticks - before->second > kTicksOfWaiting;
  processor_time_[rank] = activity->processor_ticks;
  return !ran && in_a_collective(calls_file(folder_, rank));
}

std::chrono::nanoseconds Deadlock::lasts(const std::map<int, std::optional<pid_t>>& ranks) {
  bool any = false;
  bool all = true;
  for (const auto& [rank, process] : ranks) {
    if (!process) continue;
    any = true;
    all = waits(rank, *process) && all;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!any || !all) {
    since_.reset();
    return {};
  }
  if (!since_) since_ = now;
  return now - *since_;
}

}  // namespace ddp_doctor
