// SPDX-License-Identifier: BSD-3-Clause
// docs/cpp.md shows this program whole.
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/process_group.h>
#include <torch/torch.h>

#include <iostream>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 1));
  }
  at::Tensor forward(const at::Tensor& input) { return second(torch::relu(first(input))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

int main() {
  // RANK, WORLD_SIZE, MASTER_PORT: ddp-doctor run sets them, and torchrun does.
  const auto self = ddp_doctor::rendezvous_from_environment();
  const auto group = ddp_doctor::make_gloo_process_group(self);
  ddp_doctor::Examination examination(group);  // does nothing outside ddp-doctor run

  ddp_doctor::DistributedDataParallel ddp(Net(), group);
  ddp_doctor::Observed<torch::optim::SGD> optimizer(ddp.module()->parameters(), 0.05);
  torch::manual_seed(self.rank);  // data of its own for each rank
  for (int step = 1; step <= 10; ++step) {
    const auto input = torch::randn({32, 8});
    const auto target = input.sum(1, /*keepdim=*/true);
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(ddp(input), target);  // not ddp.module()->forward(input)
    loss.backward();   // gradients are the mean over the ranks when this returns
    optimizer.step();  // and so the replicas stay equal, bit for bit
    if (self.rank == 0) std::cout << "step " << step << ": " << loss.item<double>() << std::endl;
  }
}
