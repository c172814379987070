// SPDX-License-Identifier: BSD-3-Clause
// A rank of the ranks' run: keeps its batches, and on rank 0 weights and gradients, of the first
// steps, and of two further ones in which the batches have other shapes.
#pragma once

#include <filesystem>

#include "probes/libtorch/parity/kept_step.h"
#include "probes/libtorch/parity/parity.h"

namespace ddp_doctor {

struct RanksSettings {
  std::filesystem::path folder;
  int rank = 0;
  std::int64_t steps = 3;
  std::int64_t budget = 0;  // bytes that this rank may write
  std::string how_to_give;  // batches
};

class RanksOfParity : public Parity {
 public:
  explicit RanksOfParity(RanksSettings settings);

  Samples batch(const Samples& given, const std::vector<NamedTensor>& tensors) override;
  void gradients_ready(int optimizer, const std::vector<NamedTensor>& parameters) override;
  void failed(const std::string& reason) override;

 private:
  bool wanted();

  const RanksSettings settings_;
  std::int64_t step_ = 1;  // under way
  KeptStep kept_;
  std::string first_shapes_;
  std::size_t micro_batches_ = 0;         // of the first step
  std::int64_t first_ = 0, further_ = 0;  // steps that are kept
  std::int64_t written_ = 0;
  bool over_ = false;
};

}  // namespace ddp_doctor
