// SPDX-License-Identifier: BSD-3-Clause
// The program of tests/command_line/parity_compiled.sh: a classifier with dropout that says what
// its batches are. usage: parity_trainer [healthy] [scaled] [weighted] [global-batch] [silent]
// [short] [two-optimizers]
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/process_group.h>

#include <optional>
#include <set>
#include <string>

namespace {

struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(),
                                        torch::nn::Dropout(0.3), torch::nn::Linear(16, 3)));
    scale = register_parameter("scale", torch::ones({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x) * scale; }
  torch::nn::Sequential layers{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Classifier);

void train(const std::set<std::string>& what) {
  const bool weighted = what.contains("weighted");
  const auto self = ddp_doctor::rendezvous_from_environment();
  const auto group = ddp_doctor::make_gloo_process_group(self);
  ddp_doctor::Examination examination(group);
  torch::manual_seed(3);
  ddp_doctor::DistributedDataParallel ddp(Classifier(), group);
  auto parameters = ddp.module()->layers->parameters();
  std::optional<ddp_doctor::Observed<torch::optim::SGD>> second;
  if (what.contains("two-optimizers")) {
    second.emplace(std::vector<at::Tensor>{ddp.module()->scale}, 0.1);
  } else {
    parameters.push_back(ddp.module()->scale);
  }
  ddp_doctor::Observed<torch::optim::SGD> optimizer(parameters, 0.1);
  torch::manual_seed(self.rank);
  const int micro_batches = what.contains("global-batch") ? 4 / self.world_size : 2;
  for (int step = 1; step <= (what.contains("short") ? 4 : 60); ++step) {
    ddp.module()->train();
    optimizer.zero_grad();
    if (second) second->zero_grad();
    for (int micro = 1; micro <= micro_batches; ++micro) {
      std::optional<ddp_doctor::NoSync> no_sync;
      if (micro < micro_batches) no_sync.emplace(ddp.reducer());
      at::Tensor x = torch::randn({weighted ? 4 + 3 * self.rank : 4, 6});
      at::Tensor y = x.slice(1, 0, 3).argmax(1);
      if (!what.contains("silent")) {
        const auto taken = examination.batch({x, y});
        x = taken[0];
        y = taken[1];
      }
      at::Tensor loss = torch::nn::functional::cross_entropy(ddp(x), y) / micro_batches;
      if (what.contains("scaled")) loss = loss * self.world_size;
      examination.loss(loss.item<double>());
      loss.backward();
    }
    optimizer.step();
    if (second) second->step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  train({argv + 1, argv + argc});
}
