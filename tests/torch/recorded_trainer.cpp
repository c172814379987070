// SPDX-License-Identifier: BSD-3-Clause
// The program of tests/python/test_recorders.py in C++: what recorded_trainer.py does in Python.
// usage: recorded_trainer PROGRAM.pt STRATEGY STEPS ACCUMULATE
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/observed_process_group.h>
#include <ddp_doctor/process_group.h>

#include <optional>
#include <string>

namespace {

using namespace ddp_doctor;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const torch::jit::Module& from) {
    if (from.hasattr("orphan")) orphan = register_module("orphan", torch::nn::Linear(8, 8));
    head = register_module("head", torch::nn::Linear(4, 8));
    fixed = register_module("fixed", torch::nn::Linear(8, 8));
    late = register_module("late", torch::nn::Linear(8, 8));
    mean = register_buffer("mean", torch::zeros({1}));
    const torch::NoGradGuard no_grad;
    for (const auto& given : from.named_parameters()) {
      auto& own = named_parameters()[given.name];
      own.copy_(given.value);
      own.set_requires_grad(given.value.requires_grad());
    }
  }
  at::Tensor forward(const at::Tensor& x, bool drops) {
    mean.add_(x.mean());
    at::Tensor y = fixed(torch::tanh(head(x)));
    return drops ? y + late(y).detach() : late(y);
  }
  torch::nn::Linear orphan{nullptr}, head{nullptr}, fixed{nullptr}, late{nullptr};
  at::Tensor mean;
};
TORCH_MODULE(Net);

void train(const std::string& program, const std::string& strategy, int steps, int accumulate) {
  const Rendezvous self = rendezvous_from_environment();
  const auto group = observed(make_gloo_process_group(self));
  Examination examination(group);
  auto script = torch::jit::load(program);
  Net model(script);
  std::optional<DistributedDataParallel<Net>> ddp;
  if (strategy.starts_with("allreduce")) {
    examination.attach(model);
  } else {
    ddp.emplace(
        model, group,
        DistributedDataParallelOptions{.find_unused_parameters = strategy == "ddp-find-unused"});
  }
  std::vector<at::Tensor> trainable;
  for (const auto& parameter : model->parameters()) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  const auto half = strategy == "two-optimizers" ? trainable.begin() + 2 : trainable.end();
  Observed<torch::optim::SGD> optimizer(std::vector<at::Tensor>(trainable.begin(), half), 0.01);
  std::optional<Observed<torch::optim::SGD>> second;
  if (half != trainable.end()) second.emplace(std::vector<at::Tensor>(half, trainable.end()), 0.01);
  for (int step = 1; step <= steps; ++step) {
    for (auto& parameter : trainable) parameter.mutable_grad() = at::Tensor();
    for (int micro = 1; micro <= accumulate; ++micro) {
      std::optional<NoSync> no_sync;
      if (ddp && micro < accumulate) no_sync.emplace(ddp->reducer());
      const int number = (step - 1) * accumulate + micro;
      const auto batch = script.get_method("batch")({self.rank, self.world_size, number}).toTuple();
      const at::Tensor x = batch->elements()[0].toTensor();
      const bool drops = batch->elements()[1].toBool();
      const at::Tensor output = ddp && strategy != "bypass" ? (*ddp)(x, drops) : model(x, drops);
      const at::Tensor loss = output.pow(2).mean() / accumulate;
      examination.loss(loss.item<double>());
      loss.backward();
    }
    if (!ddp) {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : trainable) {
        if (!parameter.grad().defined()) continue;
        std::vector<at::Tensor> gradient{parameter.grad()};
        group->allreduce(gradient)->wait();
        gradient.front().div_(self.world_size);
      }
    }
    optimizer.step();
    if (second) second->step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  torch::set_num_threads(1);
  train(argv[1], argv[2], std::stoi(argv[3]), std::stoi(argv[4]));
}
