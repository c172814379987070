// SPDX-License-Identifier: BSD-3-Clause
// An optimizer that reports its steps to the examination:
//
//   ddp_doctor::Observed<torch::optim::Adam> optimizer(model->parameters(), 1e-3);
//
// It is a torch::optim::Adam, with the same arguments and behaviour. Without an Examination, step()
// costs one pointer check.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <utility>
#include <vector>

namespace ddp_doctor {

using LossClosure = std::function<at::Tensor()>;

// Runs `step(closure)`, the optimizer's own, as a step that the examination of this thread sees.
at::Tensor observe_step(torch::optim::Optimizer& optimizer, LossClosure closure,
                        const std::function<at::Tensor(LossClosure)>& step);

namespace detail {
void optimizer_made(torch::optim::Optimizer& optimizer);
void optimizer_goes(torch::optim::Optimizer& optimizer);
}  // namespace detail

template <class Base>
class Observed : public Base {
 public:
  template <class... Arguments>
  explicit Observed(Arguments&&... arguments) : Base(std::forward<Arguments>(arguments)...) {
    detail::optimizer_made(*this);
  }
  // A list of parameter groups, as braces give it.
  explicit Observed(std::vector<torch::optim::OptimizerParamGroup> groups)
      : Base(std::move(groups)) {
    detail::optimizer_made(*this);
  }
  ~Observed() override { detail::optimizer_goes(*this); }

  at::Tensor step(LossClosure closure = nullptr) override {
    return observe_step(*this, std::move(closure),
                        [this](LossClosure given) { return Base::step(std::move(given)); });
  }
};

}  // namespace ddp_doctor
