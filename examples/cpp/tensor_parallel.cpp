// SPDX-License-Identifier: BSD-3-Clause
// Tensor and sequence parallelism by hand, as Megatron-LM has it: between a linear layer split by
// columns and one split by rows the ranks have hidden units of their own, and outside of these each
// has a part of the sequence. The norm is the same on all ranks.
//
// The bug: each rank has the norm's gradient of its part of the sequence only. Nothing adds them
// up, and the copies of the norm drift apart. --healthy adds them up.
#include <ATen/CPUGeneratorImpl.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/observed_process_group.h>

#include <iostream>

#include "examples/cpp/data.h"

namespace {

using ddp_doctor::ProcessGroupPtr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kLength = 8;

const ProcessGroupPtr* tensor_parallel_group = nullptr;  // main()'s, of all ranks

at::Tensor sum_of(const at::Tensor& share) {
  std::vector<at::Tensor> sum{share.contiguous().clone()};
  (*tensor_parallel_group)->allreduce(sum)->wait();
  return sum.front();
}

at::Tensor gathered(const at::Tensor& part) {
  const auto& group = *tensor_parallel_group;
  std::vector<std::vector<at::Tensor>> parts(1);
  for (int rank = 0; rank < group->getSize(); ++rank)
    parts.front().push_back(torch::empty_like(part, at::MemoryFormat::Contiguous));
  std::vector<at::Tensor> own{part.contiguous()};
  group->allgather(parts, own)->wait();
  return torch::cat(parts.front(), 1);
}

at::Tensor own_part(const at::Tensor& whole) {
  const auto& group = *tensor_parallel_group;
  return whole.chunk(group->getSize(), 1)[static_cast<std::size_t>(group->getRank())].contiguous();
}

// The whole sequence; backward, this rank's part of the sum of all ranks' gradients.
struct GatherSequence : torch::autograd::Function<GatherSequence> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& part) { return gathered(part); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {own_part(sum_of(gradients.front()))};
  }
};

// This rank's part of the sum of all ranks' outputs; backward, the gradients of all parts.
struct ScatterSequence : torch::autograd::Function<ScatterSequence> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& share) {
    return own_part(sum_of(share));
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gathered(gradients.front())};
  }
};

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    const auto& group = *tensor_parallel_group;
    const std::int64_t hidden = 4 * kWidth / group->getSize();
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up",
                         torch::nn::Linear(torch::nn::LinearOptions(kWidth, hidden).bias(false)));
    down = register_module("down",
                           torch::nn::Linear(torch::nn::LinearOptions(hidden, kWidth).bias(false)));
    // Of one matrix for all ranks, this rank's columns and rows.
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(11);
    torch::NoGradGuard no_grad;
    const auto first = static_cast<std::int64_t>(group->getRank()) * hidden;
    up->weight.copy_(
        (0.2 * torch::randn({4 * kWidth, kWidth}, generator)).narrow(0, first, hidden));
    down->weight.copy_(
        (0.2 * torch::randn({kWidth, 4 * kWidth}, generator)).narrow(1, first, hidden));
  }
  // Takes and returns this rank's part of the sequence.
  at::Tensor forward(const at::Tensor& part) {
    const at::Tensor whole = GatherSequence::apply(norm(part));
    return part + ScatterSequence::apply(down(torch::gelu(up(whole))));
  }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

}  // namespace

int main(int argc, char** argv) {
  const bool healthy = example::is_healthy(argc, argv);
  const auto self = ddp_doctor::rendezvous_from_environment();
  const auto group = ddp_doctor::observed(ddp_doctor::make_gloo_process_group(self));
  ddp_doctor::Examination examination(group);

  tensor_parallel_group = &group;
  Block block;
  examination.attach(block);
  // All ranks are one dimension, along which these two are split and the norm is not.
  const ddp_doctor::MeshOfRanks mesh{{self.world_size}, {"tp"}};
  examination.placement(block->up->weight, mesh, {"Shard(0)"});
  examination.placement(block->down->weight, mesh, {"Shard(1)"});
  for (const auto& parameter : block->norm->parameters())
    examination.placement(parameter, mesh, {"Replicate"});

  ddp_doctor::Observed<torch::optim::SGD> optimizer(block->parameters(), 0.05);
  const at::Generator batches = at::make_generator<at::CPUGeneratorImpl>(3);
  double last = 0;
  for (int step = 0; step < 10; ++step) {
    const at::Tensor whole = torch::randn({4, kLength, kWidth}, batches);
    const at::Tensor output = block(own_part(whole));
    // The sum over the parts is the loss of the sequence.
    const at::Tensor loss = (output - own_part(whole.roll(1, 1))).square().sum() / whole.numel();
    optimizer.zero_grad();
    loss.backward();
    if (healthy) {
      for (const auto& parameter : block->norm->parameters())
        parameter.grad().copy_(sum_of(parameter.grad()));
    }
    last = loss.item<double>();
    examination.loss(last);
    optimizer.step();
  }
  std::cout << "rank " << self.rank << ": loss " << last << std::endl;
}
