// Proves, from outside, that the ranks of a job wait for each other for ever: each of them is
// inside a collective (its call log says so) or has ended, and none of their processes has run for
// a while. A rank that saves, evaluates, compiles or stands in a debugger is not inside a
// collective, or runs, or is stopped: then nothing is proven, however long it takes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>

namespace ddp_doctor {

class Deadlock {
 public:
  explicit Deadlock(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // `ranks`: the process of every rank of the job, nothing where it has ended. Returns for how long
  // they have been waiting for each other; zero if that is not so, or cannot be told. To be called
  // now and then.
  std::chrono::nanoseconds lasts(const std::map<int, std::optional<pid_t>>& ranks);

 private:
  bool waits(int rank, pid_t process);

  std::filesystem::path folder_;
  std::map<int, long long> processor_time_;  // by rank, in clock ticks, as of the last look
  std::optional<std::chrono::steady_clock::time_point> since_;
};

}  // namespace ddp_doctor
