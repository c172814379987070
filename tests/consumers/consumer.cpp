// SPDX-License-Identifier: BSD-3-Clause
// What a user's test of a training program looks like: two ranks as threads, examined, checked.
#include <ddp_doctor/check.h>
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/process_group.h>
#include <stdlib.h>

#include <iostream>
#include <thread>

namespace {

void train(int rank, const std::string& folder, bool bypass) {
  const auto group = ddp_doctor::make_gloo_process_group({.rank = rank,
                                                          .world_size = 2,
                                                          .file = folder + "/meet",
                                                          .timeout = std::chrono::seconds(60)});
  const ddp_doctor::Examination examination(group, {.folder = folder});
  torch::nn::Linear model(4, 1);
  ddp_doctor::DistributedDataParallel ddp(model, group);
  ddp_doctor::Observed<torch::optim::SGD> optimizer(model->parameters(), 0.1);
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor input = torch::full({2, 4}, 0.5 * (rank + step));
    optimizer.zero_grad();
    (bypass ? model->forward(input) : ddp(input)).pow(2).mean().backward();
    optimizer.step();
  }
}

ddp_doctor::Check check(bool bypass) {
  std::string folder = "/tmp/ddp-doctor-consumer-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return {};
  std::thread other(train, 1, folder, bypass);
  train(0, folder, bypass);
  other.join();
  auto found = ddp_doctor::check_records(folder);
  std::filesystem::remove_all(folder);
  return found;
}

}  // namespace

int main() {
  const auto healthy = check(false);
  const auto sick = check(true);
  std::cout << healthy.report << sick.report;
  return healthy.in_sync() && sick.find("DDP101") != nullptr ? 0 : 1;
}
