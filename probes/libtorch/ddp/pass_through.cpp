// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/ddp/pass_through.h"

#include <torch/csrc/autograd/functions/utils.h>

#include "probes/libtorch/ddp/torch_compat.h"

namespace ddp_doctor {
namespace {

struct PassThroughNode : torch::autograd::Node {
  PassThroughNode(torch::autograd::edge_list edges, std::function<void()> callback)
      : Node(std::move(edges)), on_backward(std::move(callback)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    on_backward();
    return std::move(gradients);  // what is undefined stays undefined
  }

  std::string name() const override { return "DistributedDataParallelPassThrough"; }

  std::function<void()> on_backward;
};

}  // namespace

std::vector<at::Tensor> pass_through(std::vector<at::Tensor> outputs,
                                     std::function<void()> on_backward) {
  NodePtr node;
  if (at::GradMode::is_enabled()) {
    node = make_node<PassThroughNode>(torch::autograd::collect_next_edges(outputs),
                                      std::move(on_backward));
  }
  for (at::Tensor& output : outputs) {
    if (output.grad_fn() == nullptr) {
      // It keeps its number among the node's outputs, but nothing leads there.
      if (node) node->add_input_metadata(torch::autograd::Node::undefined_input{});
      continue;
    }
    at::NoGradGuard no_grad;
    at::Tensor copy = output.clone();
    if (node) torch::autograd::set_history(copy, node);
    output = std::move(copy);
  }
  return outputs;
}

}  // namespace ddp_doctor
