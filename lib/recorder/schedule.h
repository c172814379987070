// SPDX-License-Identifier: BSD-3-Clause
// In which steps tensors are examined: the first `warmup`, then every `every`-th, those that the
// watcher asks for, and the last one where it is known. All ranks decide alike, without a message.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ddp_doctor {

// Where nothing says how many of the first steps are examined.
constexpr int kWarmup = 50;

struct ScheduleSettings {
  std::int64_t every = 10;
  std::int64_t warmup = kWarmup;
  std::int64_t last = 0;  // the program's last step; 0: unknown
};

class Schedule {
 public:
  explicit Schedule(const ScheduleSettings& settings) : settings_(settings) {}

  std::int64_t number() const { return number_; }  // of the step under way, from 1
  bool recorded() const { return recorded_; }
  bool is_last() const { return number_ == settings_.last; }
  bool is_wanted() const { return number_ == wanted_; }
  // Whether the graphs of outputs are read, which shows what they depend on: in the first recorded
  // steps, and after each change of what is used.
  bool reads_graphs() const { return recorded_ && graphs_left_ > 0; }

  // All ranks make a wrapper together: from there on they examine the same steps, whatever each did
  // before.
  void wrapper_made();
  // The step under way, whose forward has not begun.
  void examine() { recorded_ = true; }
  // The parameters that the step did not use, by id.
  void unused(std::vector<int> ids);
  // The step has ended. `wanted`: by the watcher; 0: none. With several `optimizers`, one step of
  // each is recorded.
  void next(std::int64_t wanted, int optimizers);

 private:
  static constexpr int kGraphs = 2;

  ScheduleSettings settings_;
  std::int64_t number_ = 1;
  std::int64_t before_ = 0;  // steps before the last wrapper was made
  std::int64_t wanted_ = 0;
  bool recorded_ = true;
  int graphs_left_ = kGraphs;
  std::optional<std::vector<int>> unused_;
};

}  // namespace ddp_doctor
