// SPDX-License-Identifier: BSD-3-Clause
// A classifier with a curriculum: easy samples first, through the wrapper, then hard ones with
// label smoothing, by a method that its author wrote later.
//
// The bug: the hard phase calls that method of the module inside the wrapper. No forward of the
// wrapper runs, so its reducer never fires, and from the first hard step on each rank trains a
// model of its own.
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>

#include <iostream>

#include "examples/cpp/data.h"

namespace {

struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl() {
    features = register_module("features", torch::nn::Linear(16, 32));
    head = register_module("head", torch::nn::Linear(32, 4));
  }
  at::Tensor forward(const at::Tensor& input) { return head(torch::relu(features(input))); }
  at::Tensor smooth_loss(const at::Tensor& input, const at::Tensor& target) {
    return torch::nn::functional::cross_entropy(
        forward(input), target,
        torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1));
  }
  torch::nn::Linear features{nullptr}, head{nullptr};
};
TORCH_MODULE(Classifier);

constexpr int kEasyEpochs = 2;
constexpr int kEpochs = 4;

}  // namespace

int main(int argc, char** argv) {
  const bool healthy = example::is_healthy(argc, argv);
  const auto self = ddp_doctor::rendezvous_from_environment();
  const auto group = ddp_doctor::make_gloo_process_group(self);
  ddp_doctor::Examination examination(group);

  torch::manual_seed(1);
  const auto inputs = torch::randn({24 * self.world_size, 16});
  auto loader = example::make_loader({inputs, inputs.slice(1, 0, 4).argmax(1)}, self, 8);
  ddp_doctor::DistributedDataParallel ddp(Classifier(), group);
  ddp_doctor::Observed<torch::optim::SGD> optimizer(ddp.module()->parameters(),
                                                    torch::optim::SGDOptions(0.1).momentum(0.9));
  double last = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      at::Tensor loss;
      if (epoch < kEasyEpochs) {
        loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      } else if (healthy) {
        loss = ddp.run([&] { return ddp.module()->smooth_loss(batch.data, batch.target); });
      } else {
        loss = ddp.module()->smooth_loss(batch.data, batch.target);
      }
      loss.backward();
      last = loss.item<double>();
      examination.loss(last);
      optimizer.step();
    }
  }
  example::save_checkpoint(self, "classifier.pt",
                           [&](const std::string& file) { torch::save(ddp.module(), file); });
  std::cout << "rank " << self.rank << ": loss " << last << std::endl;
}
