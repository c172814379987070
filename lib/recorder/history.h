// SPDX-License-Identifier: BSD-3-Clause
// What a program did, in order. Each optimizer reads the part since its own last step.
// docs/record.md has the grammar of a trace.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "lib/record/record.h"

namespace ddp_doctor {

struct Counts {
  int backwards = 0;
  int unsynchronized = 0;
  int reduced = 0;
  int through = 0;
  int around = 0;
  int collectives = 0;
  std::int64_t bytes = 0;
};

// A moment in the history.
struct Mark {
  Counts counts;
  std::size_t tokens = 0;
  std::size_t calls = 0;
};

class History {
 public:
  Counts counts;
  std::vector<double> losses;  // of the last round: the backwards after a step, before the next

  void backward();
  // Of a backward that follows, or of one before the next step.
  void loss(double value);
  void token(const std::string& text);
  // Adds a collective; repeated identical calls are counted together.
  void call(Collective call);

  Mark now() const;
  // The earliest moment that is still remembered.
  Mark beginning() const { return {{}, tokens_dropped_, calls_dropped_}; }
  std::string trace(const Mark& since) const;
  std::vector<Collective> calls(const Mark& since) const;
  // What was counted since, without what only the clock and the optimizer know.
  StepRecord row(const Mark& since) const;
  // Forgets what no optimizer (these are their last steps) will read again, and what is too old: an
  // optimizer that never steps again must not keep everything.
  void step_ended(const std::vector<Mark>& begins);

 private:
  std::deque<std::pair<std::string, int>> tokens_;
  std::size_t tokens_dropped_ = 0;
  std::deque<Collective> calls_;
  std::size_t calls_dropped_ = 0;
  void begin_round();

  Mark last_step_;  // of any optimizer
  // The step before the last round: an optimizer that has not stepped yet reads from there.
  Mark round_;
  bool in_round_ = false;
};

}  // namespace ddp_doctor
