// SPDX-License-Identifier: BSD-3-Clause
// What the ranks' progress maps show: the latest step, whether any rank made progress, which ranks
// have finished.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>

#include "lib/record/progress.h"

namespace ddp_doctor {

class Movement {
 public:
  explicit Movement(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // True if a rank made progress since the last look.
  bool look();
  bool any() const { return !ranks_.empty(); }  // some rank has a progress map
  std::int64_t step() const { return step_; }
  // How long ago that rank finished, by its own account; zero if it has not.
  std::chrono::nanoseconds finished_for(int rank) const;
  // Some rank goes on without being examined, so that no movement means nothing.
  bool unexamined() const;

 private:
  void find_ranks();

  std::filesystem::path folder_;
  std::chrono::steady_clock::time_point searched_;
  std::map<int, Progress> ranks_;
  std::int64_t newest_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace ddp_doctor
