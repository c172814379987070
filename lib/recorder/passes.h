// SPDX-License-Identifier: BSD-3-Clause
// Forwards through wrappers and around them, backwards, hand-written collectives and optimizer
// steps: how they follow each other. It counts them into the history and writes the trace
// (docs/record.md), and says of each gradient whether it is still the local one.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "lib/recorder/history.h"
#include "lib/recorder/parameter.h"

namespace ddp_doctor {

class Passes {
 public:
  explicit Passes(History& history) : history_(history) {}

  // ---- wrappers, by number in the order of construction
  int add_wrapper(int parameters);  // of its reducer
  // Its first broadcast, which reads all parameters, is no forward.
  void wrapper_made(int wrapper) { at(wrapper).read = false; }

  // A forward through the wrapper; `reduced`: its backward will be.
  void forward_begins(int wrapper, bool reduced);
  void forward_without_gradients(int wrapper);
  void forward_ends(int wrapper) { at(wrapper).inside = false; }
  // An operation, with gradients on, reads the parameter.
  void reads(Parameter& parameter, bool requires_grad);

  // ---- backwards
  bool in_backward() const { return in_backward_; }
  void backward_begins();
  struct Arrival {
    bool begins_reduction = false;  // the first gradient that a reducer gets in this backward
    bool local = false;             // examine it now: later it will have been reduced
  };
  // `first_step`: nothing is known yet of what the program's hooks do.
  Arrival gradient_arrives(Parameter& parameter, bool first_step);
  struct Backward {
    std::vector<int> touched;       // wrappers that got gradients; of these:
    std::vector<int> synchronized;  // a reducer reduced them
    std::vector<int> partial;       // but not all parameters of the reducer got one
    bool unwrapped = false;         // parameters outside of reducers got gradients
  };
  Backward backward_ends();
  // One that raised, and the program went on.
  void forget_backward() { in_backward_ = false; }
  // Its gradient waits for another micro-batch; until the next backward.
  bool is_accumulating(const Parameter& parameter) const;
  // Its local gradient was examined during this backward.
  bool is_examined(const Parameter& parameter) const { return early_.contains(&parameter); }

  // ---- collectives of the program
  const char* moment() const;  // as Collective has it
  // Counts one. `parameter`: whose gradient or weight it is, if it is one. Returns whether its
  // gradient is to be examined now, since it is still the local one.
  bool collective(std::int64_t numel, std::int64_t bytes, const Parameter* parameter,
                  bool is_gradient);
  // Whether it is the first after the step's backward; once.
  bool first_before_step();

  // ---- optimizer steps; one inside another is a part of that one
  bool step_begins();  // false: inside another
  void closure_begins();
  void gradients_taken() { updating_ = depth_ > 0; }
  bool step_ends();  // false: that of one inside another
  bool in_step() const { return depth_ > 0; }
  // After the row was written.
  void step_closed(int optimizer);

 private:
  struct Wrapper {
    bool armed = false;    // the next backward is reduced
    bool inside = false;   // its forward runs
    bool seen = false;     // a forward of it
    bool through = false;  // since the last backward
    bool read = false;     // likewise: its parameters, outside its forward
    int arrived = 0;       // gradients in the current backward
    int reduced = 0;       // those of the reducer's parameters
    int indexed = 0;       // parameters of the reducer
  };
  Wrapper& at(int wrapper) { return wrappers_[static_cast<std::size_t>(wrapper)]; }
  bool unwrapped_arrives(const Parameter& parameter, bool first_step);

  History& history_;
  std::vector<Wrapper> wrappers_;
  bool in_backward_ = false;
  bool fresh_ = false;  // gradients arrived that no optimizer has taken
  bool unwrapped_arrived_ = false;
  bool reduces_in_backward_ = false;       // the program has called a collective in one
  std::set<std::int64_t> reduced_numels_;  // elements of those since the last gradient arrived
  std::set<const Parameter*> early_;       // unwrapped, and examined in this backward
  std::vector<int> accumulating_;          // wrappers
  bool gradients_seen_ = false;            // those at the first collective before this step
  int depth_ = 0;                          // of step() in step()
  bool updating_ = false;  // an optimizer has its gradients, and its step() has not returned
};

}  // namespace ddp_doctor
