// SPDX-License-Identifier: BSD-3-Clause
// The cost of an Examination per training step: without ddp-doctor, where it should be zero, and
// with every step examined. One rank, so that no network is involved.
#include <benchmark/benchmark.h>
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/observed_process_group.h>
#include <ddp_doctor/process_group.h>
#include <stdlib.h>
#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "bench/iterations.h"

namespace {

using namespace ddp_doctor;
using torch::optim::SGD;

constexpr int kLayers = 5;

torch::nn::Sequential make_model(std::int64_t width) {
  torch::nn::Sequential model;
  for (int i = 0; i < kLayers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::ReLU());
  }
  return model;
}

template <class Optimizer>
void train(benchmark::State& state, const ProcessGroupPtr& group) {
  torch::set_num_threads(1);
  const std::int64_t width = state.range(0);
  DistributedDataParallel ddp(make_model(width), group);
  Optimizer optimizer(ddp.module()->parameters(), 0.001);
  const auto input = torch::randn({16, width});
  for (auto _ : state) {
    optimizer.zero_grad();
    ddp.run([&] { return ddp.module()->forward(input); }).pow(2).mean().backward();
    optimizer.step();
  }
}

void plain(benchmark::State& state) { train<SGD>(state, make_gloo_process_group({})); }

void not_examined(benchmark::State& state) {
  const auto group = observed(make_gloo_process_group({}));
  const Examination examination(group);
  train<Observed<SGD>>(state, group);
}

void every_step_examined(benchmark::State& state) {
  std::string folder =
      (std::filesystem::temp_directory_path() / "ddp-doctor-bench-XXXXXX").string();
  mkdtemp(folder.data());
  {
    const auto group = observed(make_gloo_process_group({}));
    const Examination examination(group, {.folder = folder, .every = 1});
    train<Observed<SGD>>(state, group);
  }
  std::filesystem::remove_all(folder);
}

void configure(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(64)->Arg(512)->Unit(benchmark::kMicrosecond)->UseRealTime();
  as_often_as_asked(benchmark);
}

BENCHMARK(plain)->Apply(configure);
BENCHMARK(not_examined)->Apply(configure);
BENCHMARK(every_step_examined)->Apply(configure);

}  // namespace
