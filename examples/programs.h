// SPDX-License-Identifier: BSD-3-Clause
// The example programs by name. Each is a training program in the form that
// `ddp-doctor run script.pt` takes; examples/README.md says what to expect of each.
#pragma once

#include <torch/script.h>

#include <span>
#include <string_view>

namespace ddp_doctor::examples {

torch::jit::Module orphan();
torch::jit::Module curriculum();
torch::jit::Module conditional();
torch::jit::Module multi_forward();
torch::jit::Module cnn();
torch::jit::Module gpt();
torch::jit::Module tied();
torch::jit::Module multi_output();
torch::jit::Module step_dependent();
torch::jit::Module detached();
torch::jit::Module token_mean();
torch::jit::Module training_step();
torch::jit::Module rank_crash();
torch::jit::Module frozen_backbone();

struct Example {
  std::string_view name;  // its file is name + ".pt"
  torch::jit::Module (*build)();
};

std::span<const Example> all_examples();

}  // namespace ddp_doctor::examples
