// SPDX-License-Identifier: BSD-3-Clause
// Events that the C++ parts of a training program report: forwards of wrappers, steps of observed
// optimizers, collectives of observed process groups. Examination (module/) receives them;
// without one, reporting costs a pointer check.
//
// No function throws, waits, or changes anything in the training.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "probes/libtorch/ddp/code_place.h"
#include "probes/libtorch/ddp/module_state.h"
#include "probes/libtorch/ddp/torch_compat.h"

namespace ddp_doctor {

struct DistributedDataParallelOptions;
class DataParallelReducer;

class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;

  // A wrapper is about to be constructed. Returns its number, from 0. Gradient hooks must be added
  // before the reducer's.
  virtual int wrapper_begins(const ModuleState& module, const CodePlace& where) = 0;
  virtual void wrapper_made(int wrapper, DataParallelReducer& reducer,
                            const DistributedDataParallelOptions& options,
                            const ProcessGroupPtr& group) = 0;
  virtual void wrapper_failed(int wrapper, const std::string& reason) = 0;
  virtual void wrapper_goes(int wrapper) = 0;

  // `paired`: it broadcasts buffers, so every rank must call it.
  virtual void forward_begins(int wrapper, bool paired) = 0;
  virtual void forward_ends(int wrapper, const std::vector<at::Tensor>& outputs) = 0;

  virtual void optimizer_made(torch::optim::Optimizer& optimizer) = 0;
  virtual void optimizer_goes(torch::optim::Optimizer& optimizer) = 0;
  virtual void step_begins(torch::optim::Optimizer& optimizer) = 0;
  virtual void closure_begins() = 0;
  virtual void gradients_ready(torch::optim::Optimizer& optimizer) = 0;
  virtual void step_ends(torch::optim::Optimizer& optimizer) = 0;

  // A collective is issued; it ends when that is done, and once more whenever it was waited for.
  // `ranks`: of the group, in the whole job's numbers; empty: all. Returns a number for the others.
  virtual std::int64_t collective_begins(const std::string& op, const std::string& reduce,
                                         const std::vector<at::Tensor>& tensors,
                                         const std::vector<int>& ranks) = 0;
  virtual void collective_resumes(std::int64_t number) = 0;
  virtual void collective_ends(std::int64_t number) = 0;

  // This is about to be thrown; the program may catch it.
  virtual void raising(const std::string& text) = 0;
  // This ends the program.
  virtual void raised(const std::string& text) = 0;
};

// The observer of this thread: if ranks are threads, each has its own. Null if there is none.
std::shared_ptr<TrainingObserver>& training_observer();

// The number of wrappers of this thread that were constructed before the observer.
int& unobserved_wrappers();

}  // namespace ddp_doctor
