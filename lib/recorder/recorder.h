// SPDX-License-Identifier: BSD-3-Clause
// One rank's step machine with its record, for probes in other languages (probe_api.h): what they
// announce, in the order in which it happens, becomes the rows of steps.
//
// Not thread-safe, but for what RankWriter is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/record/rank_writer.h"
#include "lib/recorder/history.h"
#include "lib/recorder/parameter.h"
#include "lib/recorder/passes.h"
#include "lib/recorder/schedule.h"
#include "lib/recorder/usage.h"

namespace ddp_doctor {

class Recorder : public RankWriter {
 public:
  Recorder(const std::filesystem::path& folder, const RecordHeader& header, std::int64_t budget,
           const ScheduleSettings& settings)
      : RankWriter(folder, header, budget), schedule(settings) {}

  Schedule schedule;
  History history;
  Passes passes{history};

  // ---- wrappers: their group, as in the call log, if it is known
  void wrapper_made(int wrapper, int parameters, const std::optional<std::string>& group);
  LoggedCall call_of(int wrapper, const std::string& op) const;
  // Whether other ranks' calls are paired with it.
  bool pairs_calls_of(int wrapper) const { return made(wrapper).group.has_value(); }

  // ---- backwards. Where the program called it, and what to take from local gradients
  void backward_begins(const std::string& file, int line, int what);
  int what_of_gradients() const { return what_; }
  // Whether to look at the gradient now: later it will have been reduced.
  bool gradient_arrives(Parameter& parameter, bool defined);
  void backward_ends(const Passes::Ending& ending);
  const Passes::Backward& last_backward() const { return last_backward_; }

  // ---- collectives of the program. Returns the call's number in the call log
  std::int64_t collective(Collective call, const std::string& group, bool paired,
                          std::int64_t bytes);

  // ---- optimizers, by number in the order of their first step
  int add_optimizer();
  void holds(int optimizer, std::span<Parameter* const> parameters);
  // Which of `all` its steps answer for, as others hold `elsewhere`; from now on.
  const std::vector<Parameter*>& cover(int optimizer, std::span<Parameter* const> elsewhere,
                                       std::span<Parameter* const> all);
  const std::vector<Parameter*>& covered(int optimizer) const { return of(optimizer).covered; }
  std::int64_t backwards_before(int optimizer) const {
    return of(optimizer).begin.counts.backwards;
  }
  // How these took part in the step that ends.
  void set_usages_of(int optimizer, const std::vector<const Parameter*>& parameters,
                     const ParameterView& view);
  // `row`: without what was counted; its `optimizer` is -1 for step 0. Can be written again.
  void take_row(const StepRecord& row);
  void write_row(bool examined, std::int64_t probe_ns);  // -1: as before
  void step_closed(int optimizer);

 private:
  struct Wrapper {
    std::optional<std::string> group;
    std::int64_t backward = 0;  // number of the call in progress, in the call log
  };
  const Wrapper& made(int wrapper) const { return wrappers_.at(static_cast<std::size_t>(wrapper)); }
  struct Optimizer {
    Mark begin;  // its last step
    Parameters held;
    std::vector<Parameter*> covered;
  };
  Optimizer& of(int optimizer) { return optimizers_[static_cast<std::size_t>(optimizer)]; }
  const Optimizer& of(int optimizer) const {
    return optimizers_[static_cast<std::size_t>(optimizer)];
  }
  std::int64_t backward_call(int wrapper, bool reaches);

  std::vector<Wrapper> wrappers_;
  std::vector<Optimizer> optimizers_;
  std::string file_;  // of the last backward
  int line_ = 0;
  int what_ = 0;
  Passes::Backward last_backward_;
  StepRecord row_;
};

}  // namespace ddp_doctor
