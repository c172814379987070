// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/optimizer/observed.h"

#include "probes/libtorch/ddp/observer.h"

namespace ddp_doctor {

at::Tensor observe_step(torch::optim::Optimizer& optimizer, LossClosure closure,
                        const std::function<at::Tensor(LossClosure)>& step) {
  const auto observer = training_observer();
  if (observer == nullptr) return step(std::move(closure));
  observer->step_begins(optimizer);
  at::Tensor loss;
  if (closure) {
    loss = step([&] {
      observer->closure_begins();
      at::Tensor result = closure();
      observer->gradients_ready(optimizer);
      return result;
    });
  } else {
    observer->gradients_ready(optimizer);
    loss = step(nullptr);
  }
  observer->step_ends(optimizer);
  return loss;
}

namespace detail {

void optimizer_made(torch::optim::Optimizer& optimizer) {
  if (const auto& observer = training_observer()) observer->optimizer_made(optimizer);
}

void optimizer_goes(torch::optim::Optimizer& optimizer) {
  if (const auto& observer = training_observer()) observer->optimizer_goes(optimizer);
}

}  // namespace detail

}  // namespace ddp_doctor
