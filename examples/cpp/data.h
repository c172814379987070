// SPDX-License-Identifier: BSD-3-Clause
// What the three trainers share: ranks, made-up data, and a loader that gives each rank its part.
#pragma once

#include <ddp_doctor/process_group.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

namespace example {

// `--healthy` on the command line: the twin in which the bug is fixed.
inline bool is_healthy(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const char* word) { return std::strcmp(word, "--healthy") == 0; });
}

struct Samples : torch::data::datasets::Dataset<Samples> {
  Samples(at::Tensor all_inputs, at::Tensor all_targets)
      : inputs(std::move(all_inputs)), targets(std::move(all_targets)) {}
  torch::data::Example<> get(size_t index) override {
    const auto at = static_cast<std::int64_t>(index);
    return {inputs[at], targets[at]};
  }
  torch::optional<size_t> size() const override { return static_cast<size_t>(inputs.size(0)); }
  at::Tensor inputs, targets;
};

// Every rank sees its own part of `samples`, shuffled.
inline auto make_loader(Samples samples, const ddp_doctor::Rendezvous& self, size_t batch_size) {
  const size_t count = *samples.size();
  auto mapped = std::move(samples).map(torch::data::transforms::Stack<>());
  return torch::data::make_data_loader(
      std::move(mapped),
      torch::data::samplers::DistributedRandomSampler(count, self.world_size, self.rank),
      torch::data::DataLoaderOptions(batch_size));
}

// Where a trainer leaves its checkpoint: $CHECKPOINTS, or nowhere.
inline void save_checkpoint(const ddp_doctor::Rendezvous& self, const std::string& name,
                            const std::function<void(const std::string& file)>& save) {
  const char* folder = std::getenv("CHECKPOINTS");
  if (self.rank == 0 && folder != nullptr) save((std::filesystem::path(folder) / name).string());
}

}  // namespace example
