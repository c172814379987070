// SPDX-License-Identifier: BSD-3-Clause
// Compares the replicas while they train, and tells the ranks how far it has come: which old steps
// were healthy, and may be forgotten (lib/record/thinning.h). And exact differences between the
// replicas of a model that is too large to keep all its values: while the ranks train, their
// records are read, and where weights differ the ranks are asked, through their progress maps, to
// leave the values of those parameters at a step that none has reached yet. No rank waits for it;
// one that has passed the step already is asked again for a later one.
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

  // Called as often as one likes: looks at the records twice a second at most, and never throws.
  void look() noexcept;

 private:
  void look_now();
  void compare(const std::vector<RecordReader>& readers, std::int64_t until);
  void ask(int world_size, const std::vector<std::string>& names);

  std::filesystem::path folder_;
  std::chrono::steady_clock::time_point next_{};
  Watched watched_{true, 0, {}};
  std::int64_t asked_step_ = 0;  // of the request that is not answered yet
  std::int64_t lead_ = 2;        // how far ahead of the fastest rank
  std::int64_t not_before_ = 0;  // answered: the next request may wait until here
};

}  // namespace ddp_doctor
