// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/passes.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ddp_doctor {

int Passes::add_wrapper() {
  wrappers_.emplace_back();
  return static_cast<int>(wrappers_.size()) - 1;
}

void Passes::wrapper_made(int wrapper, int parameters) {
  at(wrapper).indexed = parameters;
  at(wrapper).read = false;
}

void Passes::forward_begins(int wrapper, bool reduced) {
  Wrapper& made = at(wrapper);
  made.inside = made.seen = made.through = true;
  made.armed = reduced;
  made.spent = false;
  ++history_.counts.through;
  history_.token("F" + std::to_string(wrapper) + (reduced ? "+" : "-"));
}

void Passes::forward_without_gradients(int wrapper) {
  at(wrapper).inside = true;
  history_.token("E" + std::to_string(wrapper));
}

void Passes::forward_around(int wrapper) {
  count_around(wrapper);
  at(wrapper).through = true;
}

void Passes::count_around(int wrapper) {
  at(wrapper).seen = true;
  ++history_.counts.around;
  history_.token("N" + std::to_string(wrapper));
}

void Passes::forward_unseen(int wrapper, bool reduced) {
  if (!at(wrapper).seen) at(wrapper).armed = reduced;
}

void Passes::forget_forwards() {
  for (Wrapper& made : wrappers_) made.inside = false;
}

void Passes::reads(Parameter& parameter, bool requires_grad) {
  parameter.read = true;
  if (parameter.in_wrapper < 0 || !requires_grad) return;
  Wrapper& made = at(parameter.in_wrapper);
  if (!made.inside) made.read = true;
}

void Passes::backward_begins() {
  in_backward_ = true;
  depth_ = 0;
  history_.backward();
  unwrapped_arrived_ = false;
  reduced_numels_.clear();
  early_.clear();
  accumulating_.clear();
  for (Wrapper& made : wrappers_) made.arrived = made.reduced = 0;
  forget_forwards();
}

Passes::Arrival Passes::gradient_arrives(Parameter& parameter, bool first_step, bool defined) {
  if (defined) {
    fresh_ = true;
    ++parameter.arrivals;
    parameter.last_backward = history_.counts.backwards;
  }
  const bool indexed = parameter.is_reduced();
  Arrival arrival;
  if (!indexed) arrival.local = unwrapped_arrives(parameter, first_step);
  if (parameter.in_wrapper < 0) return arrival;
  Wrapper& made = at(parameter.in_wrapper);
  made.reduced += indexed ? 1 : 0;
  arrival.begins_reduction = ++made.arrived == 1 && made.armed;
  if (indexed) arrival.local = made.armed;
  return arrival;
}

// Nothing in torch reduces it, but a hook of the program may do so as soon as it is there, or have
// done so before it was added up.
bool Passes::unwrapped_arrives(const Parameter& parameter, bool first_step) {
  unwrapped_arrived_ = true;
  const bool hooked_before = reduced_numels_.contains(parameter.numel);
  reduced_numels_.clear();
  early_.erase(&parameter);
  if ((!first_step && !reduces_in_backward_) || hooked_before) return false;
  return early_.insert(&parameter).second;
}

Passes::Backward Passes::backward_ends(const Ending& ending) {
  in_backward_ = false;
  Backward found;
  found.unwrapped = unwrapped_arrived_;
  std::string of;
  for (int number = 0; number < static_cast<int>(wrappers_.size()); ++number) {
    Wrapper& made = at(number);
    if (made.arrived == 0) continue;
    const std::string name = std::to_string(number);
    const bool unseen = made.seen && !made.armed && !made.through;
    if (unseen) found.unseen.push_back(number);
    // A penalty on the weights, added to a loss from the wrapper, is no forward around it.
    if (ending.reads_are_seen ? made.read && !made.through : unseen) {
      count_around(number);
      made.spent = false;
    }
    if (made.spent) found.again.push_back(number);
    made.read = false;
    made.through = made.through && ending.retained;
    found.touched.push_back(number);
    of += (of.empty() ? "" : ",") + name + (!made.seen ? "?" : made.armed ? "+" : "-");
    if (!made.armed) continue;
    found.synchronized.push_back(number);
    if (made.reduced < made.indexed) found.partial.push_back(number);
    if (ending.raised) continue;
    made.armed = false;
    made.spent = true;
  }
  if (found.touched.empty() && !found.unwrapped) {
    for (int number = 0; number < static_cast<int>(wrappers_.size()); ++number) {
      if (at(number).armed && at(number).through) found.awaiting.push_back(number);
    }
  }
  if (found.synchronized.empty()) accumulating_ = found.touched;
  history_.counts.unsynchronized += accumulating_.empty() ? 0 : 1;
  history_.counts.reduced += static_cast<int>(found.synchronized.size());
  history_.token("B" + of + (found.unwrapped ? "u" : "") + (ending.retained ? "r" : ""));
  return found;
}

bool Passes::is_accumulating(const Parameter& parameter) const {
  return parameter.is_parameter && std::find(accumulating_.begin(), accumulating_.end(),
                                             parameter.in_wrapper) != accumulating_.end();
}

const char* Passes::moment() const {
  if (in_backward_) return "backward";
  if (updating_) return "optimizer";
  const auto inside = [](const Wrapper& made) { return made.inside; };
  if (std::any_of(wrappers_.begin(), wrappers_.end(), inside)) return "forward";
  return fresh_ ? "before-step" : "outside";
}

void Passes::collective(std::int64_t numel, std::int64_t bytes, const std::string& target) {
  ++history_.counts.collectives;
  history_.counts.bytes += bytes;
  history_.token(target.starts_with("gradient") ? "Cg" : target.starts_with("weight") ? "Cw" : "C");
  if (!in_backward_) return;
  reduces_in_backward_ = true;
  reduced_numels_.insert(numel);
}

bool Passes::is_still_local(const Parameter& parameter) {
  return in_backward_ && !parameter.is_reduced() && early_.insert(&parameter).second;
}

bool Passes::first_before_step() {
  const bool before_step = fresh_ && moment() == std::string("before-step");
  return before_step && !std::exchange(gradients_seen_, true);
}

bool Passes::step_begins() { return ++depth_ == 1; }

void Passes::closure_begins() {
  depth_ = 0;  // what it does is no part of the update
  history_.token("L");
}

bool Passes::step_ends() {
  depth_ = std::max(0, depth_ - 1);
  if (depth_ == 0) {
    updating_ = false;
    return true;
  }
  fresh_ = false;  // an optimizer inside another one has used the gradients
  return false;
}

void Passes::step_closed(int optimizer) {
  history_.token("S" + std::to_string(optimizer));
  fresh_ = gradients_seen_ = false;
  accumulating_.clear();
}

}  // namespace ddp_doctor
