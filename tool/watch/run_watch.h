// SPDX-License-Identifier: BSD-3-Clause
// What ddp-doctor does with the records while the ranks run: it compares the replicas
// (replica_watch.h), prints a finding that is certain as soon as it is known, tells where the ranks
// are when it is asked (SIGUSR1), and says when the run is to end.
//
// No rank notices it. The diagnosis runs in a thread of the lowest priority, when new steps have
// come, and at growing intervals, so that it takes less than a hundredth of one CPU.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/record/run_info.h"
#include "lib/timeline/replica_watch.h"
#include "tool/watch/program_options.h"

namespace ddp_doctor {

class RunWatch {
 public:
  // `ranks_here`: of this machine; 0: not known. Only the launcher that `reports` announces, and
  // only of the run that is judged.
  RunWatch(std::filesystem::path folder, const RunInfo& run, const ProgramOptions& options,
           int ranks_here, bool reports, std::ostream& err);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // Call it as often as you like; it never throws.
  void look() noexcept;
  // Whether the run is to be ended now, and why.
  std::optional<Ending> ends();

 private:
  using Clock = std::chrono::steady_clock;
  struct Diagnosed {
    std::vector<Finding> findings;
    std::chrono::nanoseconds cost{};
  };

  void look_at_ranks();
  void diagnose_when_due();
  Diagnosed diagnosed(std::int64_t until) const;
  void announce(const Diagnosed& diagnosed);
  void print_state();
  bool all_present();

  const std::filesystem::path folder_;
  const RunInfo run_;
  const std::int64_t stop_after_;
  const bool fail_fast_, reports_, announces_;
  const std::function<bool(const Finding&)> wanted_;
  std::ostream& err_;
  ReplicaWatch replicas_;

  int ranks_expected_;  // 0: not known yet
  std::vector<int> ranks_;
  Clock::time_point looked_at_{}, appeared_at_{};
  std::int64_t over_ = 0;  // the last step that is over on every rank
  bool reached_ = false;   // every rank has done the steps of --stop-after

  std::future<Diagnosed> diagnosis_;
  // Not before step 2: what ranks do not share (experts, stages) shows in the first one.
  std::int64_t diagnosed_until_ = 0, next_step_ = 2;
  Clock::time_point next_diagnosis_{};
  std::set<std::string> announced_;
  std::vector<std::string> lines_;  // that were printed
};

}  // namespace ddp_doctor
