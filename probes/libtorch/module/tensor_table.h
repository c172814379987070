// SPDX-License-Identifier: BSD-3-Clause
// The examined parameters and buffers: their names, the tensors they currently are, and their use
// in the current step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/record/rank_writer.h"
#include "lib/recorder/parameter.h"
#include "probes/libtorch/ddp/module_state.h"
#include "probes/libtorch/ddp/torch_compat.h"

namespace ddp_doctor {

struct Entry : Parameter {
  TensorInfo info;    // without what Parameter says of it
  std::string model;  // label of its module
  at::Tensor tensor;
  NodePtr accumulator;  // that we hooked; kept, as the tensor holds it weakly
  const void* data = nullptr;
};

class TensorTable {
 public:
  explicit TensorTable(RankWriter& writer) : writer_(writer) {}

  // To be set first. `tell(id)`: a gradient has arrived at this parameter, in the thread that
  // brings it.
  void on_gradient(std::function<void(int id)> tell) { on_gradient_ = std::move(tell); }
  // Likewise; `warn(text)`: something is not examined in the usual way.
  void on_trouble(std::function<void(const std::string& text)> warn) {
    on_trouble_ = std::move(warn);
  }

  // All tensors of a module. With a `wrapper`, its trainable parameters get their index in the
  // reducer.
  void add_module(const ModuleState& module, std::optional<int> wrapper, int backwards);
  // A parameter in no known module, named "parameterN" until its module is known.
  Entry* add_unknown(const at::Tensor& parameter, std::size_t position, int backwards);
  // Updates a wrapped module: tensors that replaced others, or that have new gradient accumulators
  // (after .to(torch::kDouble)), are not what the reducer hooked.
  void follow(const ModuleState& module, std::optional<int> wrapper, int backwards);
  // This wrapper was never constructed.
  void unwrap(int wrapper);

  // Hooks parameters that have been unfrozen.
  void hook_trainable();
  // Whether autograd had lost the hook, as after torch::load reads into the parameter.
  bool hook_again(Entry& entry);

  Entry* find(const at::Tensor& tensor);
  Entry& at(int id) { return *entries_[static_cast<std::size_t>(id)]; }
  const std::vector<std::unique_ptr<Entry>>& entries() const { return entries_; }
  std::int64_t parameter_elements() const;
  // By its gradient accumulator; null if it is not examined.
  Entry* of_node(const torch::autograd::Node* node);

  // Records descriptions of new and changed tensors.
  void describe();
  using Pairs = std::vector<std::pair<const Entry*, at::Tensor>>;
  // Examines GPU tensors on the GPU, if possible.
  void observe(Stage stage, int what, const Pairs& pairs);

 private:
  Entry* add(const std::string& label, const NamedTensor& named, std::optional<int> wrapper,
             int index, int backwards);
  std::string label_of(const ModuleState& module);
  void rename_all();
  void name_it(Entry& entry, const std::string& label, const NamedTensor& named);
  void bind(Entry& entry, const at::Tensor& tensor);
  void hook(Entry& entry);
  void observe_here(Stage stage, int what, const Pairs& pairs);
  bool observe_on_device(Stage stage, int what, c10::DeviceIndex device, const Pairs& pairs);

  RankWriter& writer_;
  std::function<void(int)> on_gradient_;
  std::function<void(const std::string&)> on_trouble_ = [](const std::string&) {};
  // Until the first failure; one after a success is the program's stream's, not the GPU's.
  bool devices_look_ = true, device_looked_ = false;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::unordered_map<const c10::TensorImpl*, Entry*> by_tensor_;
  std::unordered_map<const torch::autograd::Node*, Entry*> by_node_;
  std::unordered_map<std::string, Entry*> by_place_;  // "label:name"
  std::vector<std::string> labels_;
  std::vector<Entry*> undescribed_;
};

}  // namespace ddp_doctor
