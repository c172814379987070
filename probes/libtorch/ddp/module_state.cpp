// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/ddp/module_state.h"

#include <unordered_set>

namespace ddp_doctor {
namespace {

// As Python: a tied tensor counts once, under the first name.
using Seen = std::unordered_set<const c10::TensorImpl*>;

bool is_new(Seen& seen, const at::Tensor& tensor) {
  return tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second;
}

bool produces_sparse_gradient(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>()) {
    return embedding->options.sparse();
  }
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

// Python passes false for every ScriptModule, as it is no instance of nn.Embedding; training one
// with sparse=True then fails in the reducer. If the script still has the flag (a freshly compiled
// one does), it is used here.
bool produces_sparse_gradient(const torch::jit::Module& module) {
  const auto type = module.type();
  if (!type->name()) return false;
  const std::string name = type->name()->name();
  if (name != "Embedding" && name != "EmbeddingBag") return false;
  c10::IValue sparse;
  if (module.hasattr("sparse")) {
    sparse = module.attr("sparse");
  } else if (const auto slot = type->findConstantSlot("sparse")) {
    sparse = type->getConstant(*slot);
  }
  return sparse.isBool() && sparse.toBool();
}

// The children of both kinds of module, as (name, module).
template <class Visit>
void for_each_child(const torch::nn::Module& module, const Visit& visit) {
  for (const auto& child : module.named_children()) visit(child.key(), *child.value());
}
template <class Visit>
void for_each_child(const torch::jit::Module& module, const Visit& visit) {
  for (const auto& child : module.named_children()) visit(child.name, child.value);
}

// And their own parameters and buffers, as (name, tensor).
template <class Visit>
void for_each_own(const torch::OrderedDict<std::string, at::Tensor>& tensors, const Visit& visit) {
  for (const auto& tensor : tensors) visit(tensor.key(), tensor.value());
}
template <class Tensors, class Visit>
void for_each_own(const Tensors& tensors, const Visit& visit) {
  for (const auto& tensor : tensors) visit(tensor.name, tensor.value);
}

// Python's named_modules(): a module comes before its children, so its own parameters do, too.
template <class Module>
void add_parameters(const Module& module, const std::string& prefix, Seen& seen,
                    ModuleState& state) {
  const bool sparse = produces_sparse_gradient(module);
  for_each_own(module.named_parameters(/*recurse=*/false),
               [&](const std::string& name, const at::Tensor& parameter) {
                 if (!is_new(seen, parameter)) return;
                 state.all_parameters.push_back(parameter);
                 if (!parameter.requires_grad()) return;
                 state.names.push_back(prefix + name);
                 state.parameters.push_back(parameter);
                 state.expect_sparse.push_back(sparse);
               });
  for_each_child(module, [&](const std::string& name, const Module& child) {
    add_parameters(child, prefix + name + ".", seen, state);
  });
}

template <class Module>
void add_tensors(const Module& module, const std::string& prefix, Seen& seen,
                 std::vector<NamedTensor>& tensors) {
  const auto add = [&](bool is_buffer) {
    return [&, is_buffer](const std::string& name, const at::Tensor& tensor) {
      if (is_new(seen, tensor)) tensors.push_back({prefix + name, tensor, is_buffer});
    };
  };
  for_each_own(module.named_parameters(/*recurse=*/false), add(false));
  for_each_own(module.named_buffers(/*recurse=*/false), add(true));
  for_each_child(module, [&](const std::string& name, const Module& child) {
    add_tensors(child, prefix + name + ".", seen, tensors);
  });
}

template <class Module>
std::vector<NamedTensor> tensors_of(const Module& module) {
  Seen seen;
  std::vector<NamedTensor> tensors;
  add_tensors(module, "", seen, tensors);
  return tensors;
}

template <class Module>
std::vector<at::Tensor> buffers_of(const Module& module) {
  std::vector<at::Tensor> buffers;
  for (auto& named : tensors_of(module)) {
    if (named.is_buffer) buffers.push_back(std::move(named.tensor));
  }
  return buffers;
}

bool is_dropout(const std::string& type) { return type.find("Dropout") != std::string::npos; }

void turn_dropout_off(const torch::nn::Module& module) {
  for (const auto& child : module.named_children()) {
    if (is_dropout(child.value()->name())) child.value()->eval();
    turn_dropout_off(*child.value());
  }
}

void turn_dropout_off(const torch::jit::Module& module) {
  for (const auto& child : module.named_children()) {
    torch::jit::Module inner = child.value;
    if (const auto name = inner.type()->name(); name && is_dropout(name->name())) inner.eval();
    turn_dropout_off(inner);
  }
}

// "a::b::Net<c::D>" -> "Net<c::D>", "(anonymous namespace)::Net" -> "Net"
std::string without_namespaces(const std::string& name) {
  const size_t colons = name.rfind("::", name.find('<'));
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

}  // namespace

ModuleState describe(const torch::nn::Module& module) {
  ModuleState state;
  state.type_name = without_namespaces(module.name());
  Seen seen;
  add_parameters(module, "", seen, state);
  state.buffers = [&module] { return buffers_of(module); };
  state.tensors = [&module] { return tensors_of(module); };
  state.without_dropout = [&module] { turn_dropout_off(module); };
  return state;
}

ModuleState describe(const torch::jit::Module& module) {
  ModuleState state;
  state.type_name = "RecursiveScriptModule";  // what Python calls any loaded script
  Seen seen;
  add_parameters(module, "", seen, state);
  state.buffers = [module] { return buffers_of(module); };
  state.tensors = [module] { return tensors_of(module); };
  state.without_dropout = [module] { turn_dropout_off(module); };
  return state;
}

}  // namespace ddp_doctor
