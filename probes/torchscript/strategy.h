// SPDX-License-Identifier: BSD-3-Clause
// The ways to synchronize one program. The training loop is the same for all of them; a strategy
// decides what happens around the forward pass and between the last backward and optimizer.step().
#pragma once

#include <torch/script.h>

#include <functional>
#include <memory>
#include <string>

#include "probes/libtorch/ddp/distributed_data_parallel.h"

namespace ddp_doctor {

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Runs `forward`, through the wrapper if there is one, and returns its result as the wrapper
  // would.
  virtual c10::IValue forward(const std::function<c10::IValue()>& forward) = 0;
  // Hand-written synchronization after the last backward of a step.
  virtual void synchronize() {}
  // The wrapper, used or not; null if the strategy has none.
  virtual DataParallelReducer* reducer() { return nullptr; }
};

// `module` is described before wrapping. Throws Error on an unknown name, c10::Error if the wrapper
// refuses the module.
std::unique_ptr<Strategy> make_strategy(const std::string& name, ModuleState module,
                                        const ProcessGroupPtr& process_group);

}  // namespace ddp_doctor
