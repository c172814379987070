// SPDX-License-Identifier: BSD-3-Clause
// One training step of a rank, as the ranks keep it for the reference; and what the reference
// computed in one of its steps. Files of PyTorch's pickle format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "probes/libtorch/parity/samples.h"

namespace ddp_doctor {

using Gradients = std::vector<std::optional<at::Tensor>>;  // none: it got no gradient

at::Tensor copy_of(const at::Tensor& tensor);  // dense, in host memory
std::optional<at::Tensor> gradient_of(const at::Tensor& parameter);

struct KeptStep {
  std::vector<Samples> micro_batches;
  std::vector<double> losses;
  bool drew_random = false;
  // Of rank 0 only: the weights and buffers from which the step began, and the gradients that the
  // optimizer used.
  std::vector<std::string> names, parameters;
  std::vector<at::Tensor> tensors;
  Gradients gradients;
};

struct Played {
  std::vector<std::string> parameters;
  Gradients gradients;
  std::vector<double> losses;
};

std::filesystem::path kept_step_file(const std::filesystem::path& folder, int rank,
                                     std::int64_t step);
// Why a rank could keep nothing.
std::filesystem::path impossible_file(const std::filesystem::path& folder, int rank);

std::vector<char> to_bytes(const KeptStep& step);
std::vector<char> to_bytes(const Played& played);
void write_bytes(const std::filesystem::path& file, const std::vector<char>& bytes);
KeptStep read_kept_step(const std::filesystem::path& file);
Played read_played(const std::filesystem::path& file);

}  // namespace ddp_doctor
