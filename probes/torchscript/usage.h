// SPDX-License-Identifier: BSD-3-Clause
// Which parameters a step used, and how far the others got: whether an operation of the forward
// pass read them, and whether its output depends on them. Observed through autograd's hooks and
// RecordFunction; nothing is changed.
#pragma once

#include <ATen/record_function.h>
#include <torch/script.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lib/record/record.h"
#include "probes/libtorch/ddp/torch_compat.h"

namespace ddp_doctor {

class UsageObserver {
 public:
  // `parameters` are the trainable ones. Must be made before the wrapper: hooks run in the order of
  // registration, and ours have to see the local gradient before the reducer averages it.
  // `on_gradient(i)` is called in the backward, when parameter i has accumulated its gradient; it
  // must not throw.
  UsageObserver(std::vector<at::Tensor> parameters, std::function<void(std::size_t)> on_gradient);
  ~UsageObserver();
  UsageObserver(const UsageObserver&) = delete;
  UsageObserver& operator=(const UsageObserver&) = delete;

  void begin_step();
  void begin_forward();
  // `output` as the module returned it, before the wrapper handed it on.
  void end_forward(const c10::IValue& output);
  // Of this step, by parameter; `tensor` is the position in `parameters`.
  std::vector<Usage> end_step();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the hooks, which live as long as the parameters, hold it weakly
  std::optional<at::CallbackHandle> operators_;  // registered during a forward only
};

}  // namespace ddp_doctor
