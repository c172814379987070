// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/usage.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>
#include <utility>

#include "probes/libtorch/ddp/tensors.h"

namespace ddp_doctor {

using torch::autograd::Node;

struct UsageObserver::State {
  std::vector<at::Tensor> parameters;
  std::function<void(std::size_t)> on_gradient;
  std::vector<NodePtr> accumulators;  // autograd holds them weakly: ours keep the hooks alive
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_impl;
  std::unordered_map<const Node*, std::size_t> by_node;
  std::vector<std::atomic<bool>> used;
  std::vector<std::atomic<bool>> reached;
  std::vector<at::Tensor> outputs;  // of this step's forwards: their graph outlives the backward

  explicit State(std::size_t count) : used(count), reached(count) {}

  void saw(const c10::IValue& value) {
    if (value.isTensor()) {
      saw(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) saw(tensor);
    }
  }

  void saw(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto found = by_impl.find(tensor.unsafeGetTensorImpl());
    if (found != by_impl.end()) reached[found->second].store(true, std::memory_order_relaxed);
  }

  // Parameters that `outputs` depend on through the autograd graph.
  std::vector<bool> connected() const {
    std::vector<bool> found(parameters.size(), false);
    std::vector<const Node*> pending;
    std::unordered_set<const Node*> visited;
    const auto visit = [&](const Node* node) {
      if (node != nullptr && visited.insert(node).second) pending.push_back(node);
    };
    for (const auto& output : outputs) visit(output.grad_fn().get());
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      if (const auto leaf = by_node.find(node); leaf != by_node.end()) found[leaf->second] = true;
      for (const auto& edge : node->next_edges()) visit(edge.function.get());
    }
    return found;
  }
};

namespace {

// The observer of this thread's forward pass: RecordFunction callbacks are plain functions.
template <class State>
State*& watching() {
  thread_local State* state = nullptr;
  return state;
}

}  // namespace

UsageObserver::UsageObserver(std::vector<at::Tensor> parameters,
                             std::function<void(std::size_t)> on_gradient)
    : state_(std::make_shared<State>(parameters.size())) {
  state_->parameters = std::move(parameters);
  state_->on_gradient = std::move(on_gradient);
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    const auto& parameter = state_->parameters[i];
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [weak = std::weak_ptr(state_), i](const torch::autograd::variable_list& outputs,
                                          const torch::autograd::variable_list& gradients) {
          const auto state = weak.lock();
          // The wrapper's pass-through node lets the hook fire without a gradient too.
          if (state != nullptr && !gradients.empty() && gradients.front().defined()) {
            state->used[i].store(true, std::memory_order_relaxed);
            state->on_gradient(i);
          }
          return outputs;
        }));
    state_->by_impl[parameter.unsafeGetTensorImpl()] = i;
    state_->by_node[accumulator.get()] = i;
    state_->accumulators.push_back(std::move(accumulator));
  }
}

UsageObserver::~UsageObserver() {
  if (operators_) at::removeCallback(*operators_);
}

void UsageObserver::begin_step() {
  for (auto& flag : state_->used) flag.store(false, std::memory_order_relaxed);
  for (auto& flag : state_->reached) flag.store(false, std::memory_order_relaxed);
  state_->outputs.clear();
}

void UsageObserver::begin_forward() {
  watching<State>() = state_.get();
  operators_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& operation) -> std::unique_ptr<at::ObserverContext> {
            for (const auto& input : operation.inputs()) watching<State>()->saw(input);
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

void UsageObserver::end_forward(const c10::IValue& output) {
  at::removeCallback(*std::exchange(operators_, std::nullopt));
  watching<State>() = nullptr;
  for (auto& tensor : collect_tensors(output)) state_->outputs.push_back(std::move(tensor));
}

std::vector<Usage> UsageObserver::end_step() {
  std::vector<Usage> usages(state_->parameters.size());
  bool any_unused = false;
  for (std::size_t i = 0; i < usages.size(); ++i) {
    usages[i].tensor = static_cast<int>(i);
    usages[i].used = state_->used[i].load(std::memory_order_relaxed);
    usages[i].reached = usages[i].used || state_->reached[i].load(std::memory_order_relaxed);
    usages[i].in_output = usages[i].used;
    usages[i].frozen = !state_->parameters[i].requires_grad();
    any_unused = any_unused || !usages[i].used;
  }
  if (any_unused) {
    const auto connected = state_->connected();
    for (std::size_t i = 0; i < usages.size(); ++i)
      usages[i].in_output = usages[i].in_output.value_or(false) || connected[i];
  }
  state_->outputs.clear();
  return usages;
}

}  // namespace ddp_doctor
