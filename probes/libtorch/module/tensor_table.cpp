// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/module/tensor_table.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <map>

#include "lib/error.h"
#include "probes/libtorch/module/cuda_stream.h"
#include "probes/libtorch/module/tensor_view.h"

namespace ddp_doctor {
namespace {

const void* data_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() ? tensor.data_ptr() : nullptr;
}

std::string owner_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

void set_extent(Entry& entry, const at::Tensor& tensor) {
  entry.info.dtype = dtype_name(tensor.scalar_type());
  entry.info.sizes = tensor.sizes().vec();
  entry.numel = tensor.numel();
}

TensorInfo described(const Entry& entry) {
  TensorInfo info = entry.info;
  info.id = entry.id;
  info.kind = entry.is_parameter ? "parameter" : "buffer";
  info.numel = entry.numel;
  info.trainable = entry.trainable;
  if (entry.in_wrapper >= 0) info.wrapper = entry.in_wrapper;
  if (entry.is_reduced()) info.ddp_index = entry.in_reducer;
  return info;
}

// On a GPU, with the dtype and size in the record.
bool is_as_described(const Entry& entry, const at::Tensor& tensor) {
  return tensor.is_cuda() && !seen_as_bytes(tensor.scalar_type()) &&
         dtype_name(tensor.scalar_type()) == entry.info.dtype && tensor.numel() == entry.numel;
}

std::string place(const std::string& label, const std::string& name) { return label + ":" + name; }

}  // namespace

void TensorTable::add_module(const ModuleState& module, std::optional<int> wrapper, int backwards) {
  const std::string label = label_of(module);
  std::unordered_map<const c10::TensorImpl*, int> indices;
  if (wrapper) {
    for (std::size_t i = 0; i < module.parameters.size(); ++i)
      indices[module.parameters[i].unsafeGetTensorImpl()] = static_cast<int>(i);
  }
  for (const auto& named : module.tensors()) {
    const auto index = indices.find(named.tensor.unsafeGetTensorImpl());
    add(label, named, wrapper, index == indices.end() ? -1 : index->second, backwards);
  }
}

Entry* TensorTable::add_unknown(const at::Tensor& parameter, std::size_t position, int backwards) {
  return add("", {"parameter" + std::to_string(position), parameter, false}, {}, -1, backwards);
}

// The label that distinguishes several models. The first model needs none until there is a second.
std::string TensorTable::label_of(const ModuleState& module) {
  std::string name = module.type_name;
  if (name.ends_with("Impl")) name.resize(name.size() - 4);  // as TORCH_MODULE names its holder
  for (const auto& named : module.tensors()) {
    if (const Entry* known = find(named.tensor); known != nullptr && !known->model.empty())
      return known->model;
  }
  const auto taken = std::count_if(labels_.begin(), labels_.end(), [&](const auto& label) {
    return label.substr(0, label.find('#')) == name;
  });
  const std::string label = taken == 0 ? name : name + "#" + std::to_string(taken + 1);
  labels_.push_back(label);
  if (labels_.size() == 2) rename_all();
  return label;
}

void TensorTable::rename_all() {
  for (const auto& entry : entries_) {
    if (entry->model.empty()) continue;
    entry->info.name = entry->model + ":" + entry->info.name;
    undescribed_.push_back(entry.get());
  }
}

Entry* TensorTable::add(const std::string& label, const NamedTensor& named,
                        std::optional<int> wrapper, int index, int backwards) {
  if (Entry* known = find(named.tensor)) {
    if (known->model.empty() && !label.empty()) name_it(*known, label, named);
    if (wrapper && (known->in_wrapper != *wrapper || index >= 0)) {
      known->in_wrapper = *wrapper;
      known->in_reducer = index;
      known->replaced = false;
      known->data = data_of(named.tensor);
      undescribed_.push_back(known);
    }
    return known;
  }
  auto entry = std::make_unique<Entry>();
  entry->id = static_cast<int>(entries_.size());
  entry->is_parameter = !named.is_buffer;
  entry->trainable = !named.is_buffer && named.tensor.requires_grad();
  entry->in_wrapper = wrapper.value_or(-1);
  entry->in_reducer = index;
  entry->since = backwards;
  set_extent(*entry, named.tensor);
  name_it(*entry, label, named);
  entries_.push_back(std::move(entry));
  bind(*entries_.back(), named.tensor);
  return entries_.back().get();
}

void TensorTable::name_it(Entry& entry, const std::string& label, const NamedTensor& named) {
  entry.model = label;
  entry.info.name = label.empty() || labels_.size() < 2 ? named.name : label + ":" + named.name;
  entry.info.module = owner_of(named.name);
  by_place_[place(label, named.name)] = &entry;
  undescribed_.push_back(&entry);
}

void TensorTable::bind(Entry& entry, const at::Tensor& tensor) {
  if (entry.tensor.defined()) by_tensor_.erase(entry.tensor.unsafeGetTensorImpl());
  entry.tensor = tensor;
  entry.data = data_of(tensor);
  by_tensor_[tensor.unsafeGetTensorImpl()] = &entry;
  hook(entry);
}

void TensorTable::hook(Entry& entry) {
  if (!entry.is_parameter || !entry.tensor.requires_grad() || !entry.tensor.is_leaf()) return;
  NodePtr accumulator = torch::autograd::impl::grad_accumulator(entry.tensor);
  if (entry.accumulator == accumulator) return;
  if (!entry.trainable) {
    entry.trainable = true;
    undescribed_.push_back(&entry);
  }
  accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [tell = on_gradient_, id = entry.id](const torch::autograd::variable_list& outputs,
                                           const torch::autograd::variable_list& gradients) {
        // The wrapper's pass-through node lets the hook fire without a gradient too.
        if (!gradients.empty() && gradients.front().defined()) tell(id);
        return outputs;
      }));
  by_node_[accumulator.get()] = &entry;
  entry.accumulator = std::move(accumulator);
}

void TensorTable::hook_trainable() {
  for (const auto& entry : entries_) {
    if (entry->accumulator == nullptr) hook(*entry);
  }
}

bool TensorTable::hook_again(Entry& entry) {
  if (entry.accumulator == nullptr) return false;
  if (restore_grad_accumulator(entry.tensor, entry.accumulator)) return true;
  if (entry.in_wrapper >= 0) return false;  // follow() will see what became of it
  const NodePtr before = entry.accumulator;
  hook(entry);
  return entry.accumulator != before;
}

void TensorTable::follow(const ModuleState& module, std::optional<int> wrapper, int backwards) {
  const std::string label = label_of(module);
  for (const auto& named : module.tensors()) {
    Entry* known = find(named.tensor);
    if (known != nullptr) {
      if (data_of(named.tensor) == known->data) continue;
      known->data = data_of(named.tensor);
      if (dtype_name(named.tensor.scalar_type()) != known->info.dtype) {
        set_extent(*known, named.tensor);
        undescribed_.push_back(known);
      }
      if (known->accumulator == nullptr || !named.tensor.requires_grad()) continue;
      if (restore_grad_accumulator(known->tensor, known->accumulator)) continue;
      const NodePtr before = known->accumulator;
      hook(*known);
      known->replaced = known->replaced || known->accumulator != before;
      continue;
    }
    const auto there = by_place_.find(place(label, named.name));
    if (there == by_place_.end()) {
      add(label, named, wrapper, -1, backwards);
      continue;
    }
    Entry& entry = *there->second;
    entry.replaced = entry.replaced || entry.is_reduced();
    set_extent(entry, named.tensor);
    undescribed_.push_back(&entry);
    entry.accumulator = nullptr;
    bind(entry, named.tensor);
  }
}

void TensorTable::unwrap(int wrapper) {
  for (const auto& entry : entries_) {
    if (entry->in_wrapper != wrapper) continue;
    entry->in_wrapper = entry->in_reducer = -1;
    entry->trainable = entry->trainable && entry->arrivals > 0;
    undescribed_.push_back(entry.get());
  }
}

Entry* TensorTable::find(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const auto found = by_tensor_.find(tensor.unsafeGetTensorImpl());
  return found == by_tensor_.end() ? nullptr : found->second;
}

Entry* TensorTable::of_node(const torch::autograd::Node* node) {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? nullptr : found->second;
}

std::int64_t TensorTable::parameter_elements() const {
  std::int64_t elements = 0;
  for (const auto& entry : entries_) elements += entry->is_parameter ? entry->numel : 0;
  return elements;
}

void TensorTable::describe() {
  if (undescribed_.empty()) return;
  std::sort(undescribed_.begin(), undescribed_.end());
  undescribed_.erase(std::unique(undescribed_.begin(), undescribed_.end()), undescribed_.end());
  std::vector<TensorInfo> infos;
  for (const Entry* entry : undescribed_) infos.push_back(described(*entry));
  undescribed_.clear();
  writer_.describe(infos);
}

void TensorTable::observe(Stage stage, int what, const Pairs& pairs) {
  describe();
  Pairs here;
  std::map<c10::DeviceIndex, Pairs> there;
  for (const auto& pair : pairs) {
    const bool on_device = devices_look_ && is_as_described(*pair.first, pair.second);
    (on_device ? there[pair.second.device().index()] : here).push_back(pair);
  }
  for (const auto& [device, its] : there) {
    if (!observe_on_device(stage, what, device, its))
      here.insert(here.end(), its.begin(), its.end());
  }
  observe_here(stage, what, here);
}

void TensorTable::observe_here(Stage stage, int what, const Pairs& pairs) {
  std::int64_t bytes = 0;
  for (const auto& [entry, tensor] : pairs)
    bytes += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  what = writer_.affordable(what, bytes);
  for (const auto& [entry, tensor] : pairs) {
    const LocalTensor local(tensor);
    writer_.observe(stage, what, entry->id, local.view());
  }
}

// False: they have to be copied.
bool TensorTable::observe_on_device(Stage stage, int what, c10::DeviceIndex device,
                                    const Pairs& pairs) {
  const auto stream = current_cuda_stream(device);
  if (!stream) return devices_look_ = false;
  // Copies made here are freed in stream order, after they were examined.
  std::vector<at::Tensor> kept;
  std::vector<RankWriter::OnDevice> tensors;
  for (const auto& [entry, tensor] : pairs) {
    kept.push_back(dense(tensor));
    tensors.push_back({entry->id, kept.back().data_ptr()});
  }
  try {
    writer_.observe_on_device(stage, what, device, *stream, tensors);
    return device_looked_ = true;
  } catch (const Error& error) {
    if (device_looked_) throw;
    on_trouble_(std::string("tensors on the GPU are copied to the CPU to be examined, so examined "
                            "steps take longer: ") +
                error.what());
    return devices_look_ = false;
  }
}

}  // namespace ddp_doctor
