#include <unordered_set>

#include "probes/ddp/distributed_data_parallel.h"

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
// with sparse=True then dies in the reducer. A script that still knows the flag (a freshly compiled
// one does) is told right here.
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
void add_buffers(const Module& module, Seen& seen, std::vector<at::Tensor>& buffers) {
  for_each_own(module.named_buffers(/*recurse=*/false),
               [&](const std::string&, const at::Tensor& buffer) {
                 if (is_new(seen, buffer)) buffers.push_back(buffer);
               });
  for_each_child(
      module, [&](const std::string&, const Module& child) { add_buffers(child, seen, buffers); });
}

template <class Module>
std::vector<at::Tensor> buffers_of(const Module& module) {
  Seen seen;
  std::vector<at::Tensor> buffers;
  add_buffers(module, seen, buffers);
  return buffers;
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
  return state;
}

ModuleState describe(const torch::jit::Module& module) {
  ModuleState state;
  state.type_name = "RecursiveScriptModule";  // what Python calls any loaded script
  Seen seen;
  add_parameters(module, "", seen, state);
  state.buffers = [module] { return buffers_of(module); };
  return state;
}

}  // namespace ddp_doctor
