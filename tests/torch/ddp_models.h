// SPDX-License-Identifier: BSD-3-Clause
// Models whose gradients are the numbers that are put in, so that means over ranks are exact.
#pragma once

#include <torch/torch.h>

namespace ddp_doctor::test {

// The gradient of `weight` is the input.
struct ScaleImpl : torch::nn::Module {
  ScaleImpl() { weight = register_parameter("weight", torch::ones({2})); }
  at::Tensor forward(const at::Tensor& input) { return (weight * input).sum(); }
  at::Tensor weight;
};
TORCH_MODULE(Scale);

// Uses only the branches it is told to.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    a = register_module("a", Scale());
    b = register_module("b", Scale());
    c = register_module("c", Scale());
  }
  at::Tensor forward(const at::Tensor& input, const std::string& branches) {
    at::Tensor sum;
    for (const char branch : branches) {
      at::Tensor output = (branch == 'a' ? a : branch == 'b' ? b : c)->forward(input);
      sum = sum.defined() ? sum + output : output;
    }
    return sum;
  }
  Scale a{nullptr}, b{nullptr}, c{nullptr};
};
TORCH_MODULE(Branches);

// Two outputs, of which a loss may use one.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    trunk = register_parameter("trunk", torch::ones({2}));
    left = register_parameter("left", torch::ones({2}));
    right = register_parameter("right", torch::ones({2}));
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& input) {
    const at::Tensor hidden = trunk * input;
    return {(left * hidden).sum(), {(right * hidden).sum()}};
  }
  at::Tensor trunk, left, right;
};
TORCH_MODULE(TwoHeads);

}  // namespace ddp_doctor::test
