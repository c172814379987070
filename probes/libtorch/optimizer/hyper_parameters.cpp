// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/optimizer/hyper_parameters.h"

#include <c10/util/Type.h>
#include <torch/optim.h>

#include <nlohmann/json.hpp>

#include "lib/digest/digest.h"
#include "probes/libtorch/module/tensor_view.h"

namespace ddp_doctor {
namespace {

using nlohmann::json;
namespace optim = torch::optim;

json plain(const std::tuple<double, double>& betas) {
  return {std::get<0>(betas), std::get<1>(betas)};
}

template <class Options>
json adam(const Options& o) {
  return {{"lr", o.lr()},
          {"betas", plain(o.betas())},
          {"eps", o.eps()},
          {"weight_decay", o.weight_decay()},
          {"amsgrad", o.amsgrad()}};
}

json group_of(const optim::OptimizerOptions& options) {
  if (const auto* o = dynamic_cast<const optim::SGDOptions*>(&options)) {
    return {{"lr", o->lr()},
            {"momentum", o->momentum()},
            {"dampening", o->dampening()},
            {"weight_decay", o->weight_decay()},
            {"nesterov", o->nesterov()}};
  }
  if (const auto* o = dynamic_cast<const optim::AdamOptions*>(&options)) return adam(*o);
  if (const auto* o = dynamic_cast<const optim::AdamWOptions*>(&options)) return adam(*o);
  if (const auto* o = dynamic_cast<const optim::RMSpropOptions*>(&options)) {
    return {{"lr", o->lr()},
            {"alpha", o->alpha()},
            {"eps", o->eps()},
            {"weight_decay", o->weight_decay()},
            {"momentum", o->momentum()},
            {"centered", o->centered()}};
  }
  if (const auto* o = dynamic_cast<const optim::AdagradOptions*>(&options)) {
    return {{"lr", o->lr()},
            {"lr_decay", o->lr_decay()},
            {"weight_decay", o->weight_decay()},
            {"eps", o->eps()}};
  }
  return {{"lr", options.get_lr()}};
}

std::vector<at::Tensor> tensors_in(const optim::OptimizerParamState& state) {
  if (const auto* s = dynamic_cast<const optim::SGDParamState*>(&state))
    return {s->momentum_buffer()};
  if (const auto* s = dynamic_cast<const optim::AdamParamState*>(&state))
    return {s->exp_avg(), s->exp_avg_sq()};
  if (const auto* s = dynamic_cast<const optim::AdamWParamState*>(&state))
    return {s->exp_avg(), s->exp_avg_sq()};
  return {};
}

}  // namespace

std::string type_of(const optim::Optimizer& optimizer) {
  // "ddp_doctor::Observed<torch::optim::SGD>", "torch::optim::Adam"
  std::string name = c10::demangle(typeid(optimizer).name());
  if (const auto of = name.find("Observed<"); of != std::string::npos)
    name = name.substr(of + 9, name.rfind('>') - of - 9);
  const auto colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

json hyper_parameters_of(const optim::Optimizer& optimizer) {
  json groups = json::array();
  for (const auto& group : optimizer.param_groups())
    groups.push_back(group.has_options() ? group_of(group.options()) : json::object());
  return groups;
}

json state_of(const optim::Optimizer& optimizer) {
  // Summed, because the order of the states may differ across ranks.
  std::uint64_t checksum = 0;
  for (const auto& [key, state] : optimizer.state()) {
    for (const auto& tensor : tensors_in(*state)) {
      if (!tensor.defined()) continue;
      const auto bits = digest(LocalTensor(tensor).view()).bits;
      for (int i = 0; i < 4; ++i) checksum += std::uint64_t{bits[i]} << (8 * i);
    }
  }
  return {optimizer.state().size(), checksum};
}

}  // namespace ddp_doctor
