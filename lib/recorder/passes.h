// SPDX-License-Identifier: BSD-3-Clause
// Forwards through wrappers and around them, backwards, hand-written collectives and optimizer
// steps: how they follow each other. It counts them into the history and writes the trace
// (docs/record.md), and says of each gradient whether it is still the local one.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lib/recorder/history.h"
#include "lib/recorder/parameter.h"

namespace ddp_doctor {

class Passes {
 public:
  explicit Passes(History& history) : history_(history) {}

  // ---- wrappers, by number in the order of construction
  int add_wrapper();
  // `parameters`: of its reducer. Its first broadcast, which reads them all, is no forward.
  void wrapper_made(int wrapper, int parameters);

  // A forward through the wrapper; `reduced`: its backward will be.
  void forward_begins(int wrapper, bool reduced);
  void forward_without_gradients(int wrapper);
  void forward_ends(int wrapper) { at(wrapper).inside = false; }
  // Its module ran without it.
  void forward_around(int wrapper);
  // Inside torch.compile no forward is seen: whether the backward that begins will be reduced.
  void forward_unseen(int wrapper, bool reduced);
  // Forwards that raised, and the program went on.
  void forget_forwards();
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
  // `defined`: not only a signal that this parameter is done.
  Arrival gradient_arrives(Parameter& parameter, bool first_step, bool defined = true);
  struct Ending {
    bool retained = false;  // its graph stays, for another one
    bool raised = false;
    bool reads_are_seen = true;  // otherwise a gradient without a forward shows one around
  };
  struct Backward {
    std::vector<int> touched;       // wrappers that got gradients; of these:
    std::vector<int> synchronized;  // a reducer reduced them
    std::vector<int> partial;       // but not all parameters of the reducer got one
    std::vector<int> again;         // and a backward of the same forward had been reduced
    std::vector<int> unseen;        // without a forward since the last backward
    std::vector<int> awaiting;      // wrappers whose reducers wait, as nothing got a gradient
    bool unwrapped = false;         // parameters outside of reducers got gradients
  };
  Backward backward_ends(const Ending& ending);
  Backward backward_ends() { return backward_ends(Ending()); }
  // One that raised, and the program went on.
  void forget_backward() { in_backward_ = false; }
  // Its gradient waits for another micro-batch; until the next backward.
  bool is_accumulating(const Parameter& parameter) const;
  // Its local gradient was examined during this backward.
  bool is_examined(const Parameter& parameter) const { return early_.contains(&parameter); }

  // ---- collectives of the program
  const char* moment() const;  // as Collective has it
  // Counts one. `target`: as Collective has it.
  void collective(std::int64_t numel, std::int64_t bytes, const std::string& target);
  // A collective takes this gradient in a backward: whether to examine it first. Once.
  bool is_still_local(const Parameter& parameter);
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
    bool spent = false;    // the last forward's backward was reduced
    bool read = false;     // likewise: its parameters, outside its forward
    int arrived = 0;       // gradients in the current backward
    int reduced = 0;       // those of the reducer's parameters
    int indexed = 0;       // parameters of the reducer
  };
  Wrapper& at(int wrapper) { return wrappers_[static_cast<std::size_t>(wrapper)]; }
  void count_around(int wrapper);
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
