// SPDX-License-Identifier: BSD-3-Clause
// The parameters and buffers under examination: what they are called, which tensor each is at
// present, and what became of it in the step under way.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/record/rank_writer.h"
#include "probes/ddp/module_state.h"
#include "probes/ddp/torch_compat.h"

namespace ddp_doctor {

// One tensor of the record, by its place in a module: the tensor there may change.
struct Entry {
  TensorInfo info;
  std::string model;  // label of its module
  at::Tensor tensor;
  NodePtr accumulator;  // that we hooked; kept, as the tensor holds it weakly
  const void* data = nullptr;
  bool replaced = false;
  bool read = false;  // by an operation of this step, with gradients on
  int since = 0;      // backward passes before it was found
  int arrivals = 0;
  int arrivals_at_step = 0;
  int last_backward = 0;
  std::int64_t seen_in = 0;       // the step in which its weight was last looked at
  std::int64_t seen_version = 0;  // which every write in place counts up

  int id() const { return info.id; }
  bool is_parameter() const { return info.kind == "parameter"; }
};

class TensorTable {
 public:
  explicit TensorTable(RankWriter& writer) : writer_(writer) {}

  // To be set first. `tell(id)`: a gradient has arrived at this parameter, in the thread that
  // brings it.
  void on_gradient(std::function<void(int id)> tell) { on_gradient_ = std::move(tell); }
  // Likewise; `warn(text)`: something is examined otherwise than usual.
  void on_trouble(std::function<void(const std::string& text)> warn) {
    on_trouble_ = std::move(warn);
  }

  // All tensors of a module. With a `wrapper`, its trainable parameters get their index in the
  // reducer.
  void add_module(const ModuleState& module, std::optional<int> wrapper, int backwards);
  // A parameter that is in no module that we know, under the name "parameterN" until it is.
  Entry* add_unknown(const at::Tensor& parameter, std::size_t position, int backwards);
  // Looks again at a module that a wrapper holds: tensors that took the place of others, or that
  // autograd knows anew (after .to(torch::kDouble)), are not what the reducer hooked.
  void follow(const ModuleState& module, int wrapper, int backwards);
  // This wrapper never came to be.
  void unwrap(int wrapper);

  // Frozen parameters may have been unfrozen: asks autograd to tell when their gradients arrive.
  void hook_trainable();
  // Whether autograd had forgotten our hook, as it does when torch::load reads into the parameter.
  bool hook_again(Entry& entry);

  Entry* find(const at::Tensor& tensor);
  Entry& at(int id) { return *entries_[static_cast<std::size_t>(id)]; }
  const std::vector<std::unique_ptr<Entry>>& entries() const { return entries_; }
  std::int64_t parameter_elements() const;
  // By the node that accumulates its gradient; null if it is none of ours.
  Entry* of_node(const torch::autograd::Node* node);

  // Tells the record about tensors that are new or changed.
  void describe();
  using Pairs = std::vector<std::pair<const Entry*, at::Tensor>>;
  // GPUs look at theirs themselves, where they can.
  void observe(Stage stage, int what, const Pairs& pairs);

 private:
  Entry* add(const std::string& label, const NamedTensor& named, std::optional<int> wrapper,
             std::optional<int> index, int backwards);
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
