// SPDX-License-Identifier: BSD-3-Clause
// Builds TorchScript programs in C++, without Python: modules are objects with parameters and
// methods given as source text, and they are saved as torch.jit.save would save them.
//
// Sources are compiled by LibTorch's own front end, which knows `torch.` operators only (no
// torch.nn.functional, no dtypes) and calls submodules as self.name.forward(x).
#pragma once

#include <torch/script.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ddp_doctor::examples {

// One program under construction. All its modules share a compilation unit. Initial values depend
// on the order of calls only: each program starts from the same seed.
class ProgramBuilder {
 public:
  ProgramBuilder();

  // A module without parameters, in training mode. Modules of one class share their methods: define
  // them on the first one only.
  torch::jit::Module module(const std::string& class_name);

  torch::jit::Module linear(std::int64_t in_features, std::int64_t out_features);
  torch::jit::Module layer_norm(std::int64_t features);
  torch::jit::Module embedding(std::int64_t entries, std::int64_t features);
  torch::jit::Module conv3x3(std::int64_t in_channels, std::int64_t out_channels);
  // With running statistics as buffers, updated in training mode.
  torch::jit::Module batch_norm(std::int64_t channels);

 private:
  void define_once(torch::jit::Module& module, const std::string& source);

  std::shared_ptr<torch::jit::CompilationUnit> unit_;
};

// Replaces `file` in one step: a reader sees the old program or the new one, never half of it.
// Throws ddp_doctor::Error if it cannot be written.
void save_program(const torch::jit::Module& program, const std::filesystem::path& file);

}  // namespace ddp_doctor::examples
