// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/recorder.h"

#include <algorithm>
#include <utility>

namespace ddp_doctor {

void Recorder::wrapper_made(int wrapper, int parameters, const std::optional<std::string>& group) {
  passes.wrapper_made(wrapper, parameters);
  schedule.wrapper_made();
  const auto number = static_cast<std::size_t>(wrapper);
  if (wrappers_.size() <= number) wrappers_.resize(number + 1);
  wrappers_[number].group = group;
}

LoggedCall Recorder::call_of(int wrapper, const std::string& op) const {
  const auto number = static_cast<std::size_t>(wrapper);
  LoggedCall call;
  call.step = schedule.number();
  call.op = op;
  if (number < wrappers_.size()) call.group = wrappers_[number].group.value_or("");
  call.target = "wrapper " + std::to_string(wrapper);
  return call;
}

// ---- backwards

void Recorder::backward_begins(const std::string& file, int line, int what) {
  passes.backward_begins();
  file_ = file;
  line_ = line;
  what_ = what;
}

bool Recorder::gradient_arrives(Parameter& parameter, bool defined) {
  const auto arrival = passes.gradient_arrives(parameter, schedule.number() == 1, defined);
  if (arrival.begins_reduction)
    wrappers_.at(static_cast<std::size_t>(parameter.in_wrapper)).backward =
        backward_call(parameter.in_wrapper, true);
  return arrival.local && schedule.recorded();
}

void Recorder::backward_ends(const Passes::Ending& ending) {
  last_backward_ = passes.backward_ends(ending);
  // Other ranks may wait for gradients that this backward does not have.
  for (const int wrapper : last_backward_.awaiting) call_ends(backward_call(wrapper, false));
  if (ending.raised) return;
  for (const int wrapper : last_backward_.synchronized)
    call_ends(wrappers_.at(static_cast<std::size_t>(wrapper)).backward);
}

std::int64_t Recorder::backward_call(int wrapper, bool reaches) {
  LoggedCall call = call_of(wrapper, "ddp.backward");
  call.reduce = reaches ? "" : "no_gradient";
  call.file = file_;
  call.line = line_;
  return call_begins(std::move(call), reaches && pairs_calls_of(wrapper));
}

// ---- collectives

std::int64_t Recorder::collective(Collective call, const std::string& group, bool paired,
                                  std::int64_t bytes) {
  passes.collective(call.numel, bytes, call.target);
  LoggedCall logged;
  logged.step = schedule.number();
  logged.numel = call.numel;
  logged.line = call.line;
  logged.op = call.op;
  logged.reduce = call.reduce;
  logged.dtype = call.dtype;
  logged.group = group;
  logged.moment = call.moment;
  logged.target = call.target;
  logged.file = call.file;
  history.call(std::move(call));
  return call_begins(std::move(logged), paired);
}

// ---- optimizers

int Recorder::add_optimizer() {
  optimizers_.push_back({history.beginning(), {}, {}});
  return static_cast<int>(optimizers_.size()) - 1;
}

void Recorder::holds(int optimizer, std::span<Parameter* const> parameters) {
  of(optimizer).held = {parameters.begin(), parameters.end()};
}

const std::vector<Parameter*>& Recorder::cover(int optimizer, std::span<Parameter* const> elsewhere,
                                               std::span<Parameter* const> all) {
  Optimizer& known = of(optimizer);
  const auto covers = covered_by(known.held, {elsewhere.begin(), elsewhere.end()});
  known.covered.clear();
  std::copy_if(all.begin(), all.end(), std::back_inserter(known.covered),
               [&](const Parameter* parameter) { return covers(*parameter); });
  return known.covered;
}

void Recorder::set_usages_of(int optimizer, const std::vector<const Parameter*>& parameters,
                             const ParameterView& view) {
  const UsageFacts facts{of(optimizer).begin, history.counts, of(optimizer).held, view};
  std::vector<Usage> usages;
  std::vector<int> unused;
  for (const Parameter* parameter : parameters) {
    const auto usage = usage_of(*parameter, facts);
    if (!usage) continue;
    if (!usage->used) unused.push_back(parameter->id);
    usages.push_back(*usage);
  }
  schedule.unused(std::move(unused));
  set_usages(std::move(usages));
}

void Recorder::take_row(const StepRecord& row) {
  const bool initial = row.optimizer < 0;
  row_ = initial ? StepRecord() : history.row(of(row.optimizer).begin);
  row_.step = initial ? 0 : schedule.number();
  row_.optimizer = initial ? 0 : row.optimizer;
  row_.started_ns = row.started_ns;
  row_.duration_ns = row.duration_ns;
  row_.skipped = row.skipped;
  row_.scale = row.scale;
}

void Recorder::write_row(bool examined, std::int64_t probe_ns) {
  row_.examined = examined;
  if (probe_ns >= 0) row_.probe_ns = probe_ns;
  write_step(row_);
}

void Recorder::step_closed(int optimizer) {
  passes.step_closed(optimizer);
  for (Parameter* parameter : of(optimizer).covered)
    parameter->arrivals_at_step = parameter->arrivals;
  of(optimizer).begin = history.now();
  std::vector<Mark> begins;
  for (const auto& other : optimizers_) begins.push_back(other.begin);
  history.step_ended(begins);
  schedule.next(wanted_step(), static_cast<int>(optimizers_.size()));
}

}  // namespace ddp_doctor
