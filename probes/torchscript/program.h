// SPDX-License-Identifier: BSD-3-Clause
// clang-format off
// A TorchScript training program: a module with exported methods, called by name.
//
//   forward(...)                            the model
//   batch(rank, world_size, step)           forward's arguments, then whatever loss needs beside the output
//   loss(output, ...)                       the loss
//   training_step(rank, world_size, step)   in place of all three: yields the loss itself
//
// Without batch(), inputs are random (--input). Without loss(), the loss is the mean of squares over all floating-point
// outputs. `step` counts micro-batches from 1, so that with --accumulate no batch comes twice.
// clang-format on
#pragma once

#include <torch/script.h>

#include <optional>
#include <string>
#include <vector>

#include "probes/torchscript/inputs.h"

namespace ddp_doctor {

class Program {
 public:
  // Throws Error if `file` is not a TorchScript program or lacks what training needs; the message
  // ends in the next action.
  Program(const std::string& file, const std::vector<InputSpec>& inputs, std::int64_t seed);

  const torch::jit::Module& module() const { return module_; }
  // There it trains from now on; batches follow it.
  void move_to(const c10::Device& device);
  bool has_training_step() const { return has_training_step_; }
  // "loss: mean of squares of the outputs (the program defines no loss)", or nothing where the
  // program brings it all.
  std::string substitutions() const;

  struct Batch {
    std::vector<c10::IValue> inputs;  // forward's arguments
    std::vector<c10::IValue> rest;    // loss's arguments after the output
  };
  Batch batch(int rank, int world_size, std::int64_t step);
  c10::IValue forward(const Batch& batch);
  at::Tensor loss(const c10::IValue& output, const Batch& batch);
  at::Tensor training_step(int rank, int world_size, std::int64_t step);

  // One pass over a copy, with gradients but without a backward: throws Error, in words for the
  // user, if the program fails by itself, or if its loss cannot be trained on.
  void rehearse(int rank, int world_size) const;

 private:
  Program(const Program&) = default;
  void check_methods() const;
  void check_loss(const at::Tensor& loss) const;

  std::string file_;
  std::vector<InputSpec> inputs_;
  std::int64_t seed_;
  std::optional<c10::Device> device_;
  torch::jit::Module module_;
  bool has_training_step_ = false;
  bool has_batch_ = false;
  bool has_loss_ = false;
};

}  // namespace ddp_doctor
