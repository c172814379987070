// SPDX-License-Identifier: BSD-3-Clause
// A small GPT that accumulates gradients over micro-batches, with no_sync for all but the last of
// each step.
//
// The bug: an epoch has ten micro-batches, a step four. What is left at the end of an epoch makes a
// step, too, but the condition for no_sync does not know that: both of its micro-batches are
// accumulated locally, and the optimizer steps on gradients that nobody averaged.
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>

#include <cmath>
#include <iostream>
#include <optional>

#include "examples/cpp/data.h"

namespace {

constexpr std::int64_t kWords = 40, kLength = 12, kWidth = 24, kHeads = 2;
constexpr int kMicroBatches = 4;  // per step

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    before_attention = register_module("before_attention", norm());
    before_mlp = register_module("before_mlp", norm());
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    mix = register_module("mix", torch::nn::Linear(kWidth, kWidth));
    grow = register_module("grow", torch::nn::Linear(kWidth, 4 * kWidth));
    shrink = register_module("shrink", torch::nn::Linear(4 * kWidth, kWidth));
    mask = register_buffer("mask", torch::ones({kLength, kLength}).tril());
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor hidden = input + attend(before_attention(input));
    return hidden + shrink(torch::gelu(grow(before_mlp(hidden))));
  }
  at::Tensor attend(const at::Tensor& input) {
    const auto batch = input.size(0);
    auto parts =
        qkv(input).view({batch, kLength, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    auto weights = parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(double(kWidth / kHeads));
    weights = torch::softmax(weights.masked_fill(mask == 0, -1e9), -1);
    return mix(weights.matmul(parts[2]).transpose(1, 2).reshape({batch, kLength, kWidth}));
  }
  static torch::nn::LayerNorm norm() {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}));
  }
  torch::nn::LayerNorm before_attention{nullptr}, before_mlp{nullptr};
  torch::nn::Linear qkv{nullptr}, mix{nullptr}, grow{nullptr}, shrink{nullptr};
  at::Tensor mask;
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
  GptImpl() {
    words = register_module("words", torch::nn::Embedding(kWords, kWidth));
    places = register_module("places", torch::nn::Embedding(kLength, kWidth));
    blocks = register_module("blocks", torch::nn::Sequential(Block(), Block()));
    last_norm = register_module("last_norm", BlockImpl::norm());
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor hidden = words(tokens) + places(torch::arange(kLength));
    // The embedding of the words is the output layer, too.
    return last_norm(blocks->forward(hidden)).matmul(words->weight.t());
  }
  torch::nn::Embedding words{nullptr}, places{nullptr};
  torch::nn::Sequential blocks{nullptr};
  torch::nn::LayerNorm last_norm{nullptr};
};
TORCH_MODULE(Gpt);

}  // namespace

int main(int argc, char** argv) {
  const bool healthy = example::is_healthy(argc, argv);
  const auto self = ddp_doctor::rendezvous_from_environment();
  const auto group = ddp_doctor::make_gloo_process_group(self);
  ddp_doctor::Examination examination(group);

  torch::manual_seed(3);
  const auto text = torch::randint(kWords, {20 * self.world_size, kLength + 1}, torch::kLong);
  auto loader =
      example::make_loader({text.slice(1, 0, kLength), text.slice(1, 1, kLength + 1)}, self, 2);
  ddp_doctor::DistributedDataParallel ddp(Gpt(), group);
  ddp_doctor::Observed<torch::optim::AdamW> optimizer(ddp.module()->parameters(),
                                                      torch::optim::AdamWOptions(3e-3));
  double last = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    int micro_batch = 0;
    constexpr int kInEpoch = 10;
    optimizer.zero_grad();
    for (auto& batch : *loader) {
      ++micro_batch;
      const bool steps = micro_batch % kMicroBatches == 0 || micro_batch == kInEpoch;
      const bool synchronizes = healthy ? steps : micro_batch % kMicroBatches == 0;
      std::optional<ddp_doctor::NoSync> no_sync;
      if (!synchronizes) no_sync.emplace(ddp.reducer());
      const auto taken = examination.batch({batch.data, batch.target});
      const at::Tensor loss =
          torch::nn::functional::cross_entropy(ddp(taken[0]).flatten(0, 1), taken[1].flatten()) /
          kMicroBatches;
      loss.backward();
      last = loss.item<double>();
      examination.loss(last);
      if (!steps) continue;
      torch::nn::utils::clip_grad_norm_(ddp.module()->parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  example::save_checkpoint(self, "gpt.pt", [&](const std::string& file) {
    torch::save(ddp.module(), file);
    torch::save(optimizer, file + ".optimizer");
  });
  std::cout << "rank " << self.rank << ": loss " << last << std::endl;
}
