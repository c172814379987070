// SPDX-License-Identifier: BSD-3-Clause
// Compares the replicas while they train, and reports its progress to the ranks: which old steps
// were healthy and may be deleted (lib/record/thinning.h). It also gets exact differences between
// replicas of a model that is too large to keep all its values: it reads the records during
// training and, if weights differ, requests through the progress maps that all ranks record the
// values of those parameters at a step that none has reached yet. No rank waits for it; if a rank
// has already passed the step, a later one is requested.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/record/reader.h"
#include "lib/record/thinning.h"

namespace ddp_doctor {

class ReplicaWatch {
 public:
  explicit ReplicaWatch(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Call it as often as you like: it reads the records at most twice per second, and never throws.
  void look() noexcept;

 private:
  void look_now();
  void compare(const std::vector<RecordReader>& readers, std::int64_t until);
  void ask(int world_size, const std::vector<std::string>& names);

  std::filesystem::path folder_;
  std::chrono::steady_clock::time_point next_{};
  Watched watched_{true, 0, {}};
  std::int64_t asked_step_ = 0;  // of the pending request
  std::int64_t lead_ = 2;        // how far ahead of the fastest rank
  std::int64_t not_before_ = 0;  // answered: the next request may wait until here
};

}  // namespace ddp_doctor
