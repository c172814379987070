// SPDX-License-Identifier: BSD-3-Clause
// An optimizer's hyper-parameters and state, as JSON for comparing ranks.
#pragma once

#include <torch/optim/optimizer.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ddp_doctor {

// "SGD"
std::string type_of(const torch::optim::Optimizer& optimizer);
// One object per parameter group. Of optimizers that are not LibTorch's own: the learning rate.
nlohmann::json hyper_parameters_of(const torch::optim::Optimizer& optimizer);
// [parameters that have a state, checksum of the tensors in it]: [0, 0] unless the program loaded
// one.
nlohmann::json state_of(const torch::optim::Optimizer& optimizer);

}  // namespace ddp_doctor
