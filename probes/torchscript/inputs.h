// SPDX-License-Identifier: BSD-3-Clause
// Random inputs for programs that bring no batch(): `--input float32[8,32]`.
#pragma once

#include <torch/script.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp_doctor {

struct InputSpec {
  std::string text;  // as given
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t bound = 10;  // integers are drawn from [0, bound): int64[8,16]:5000
};

// Throws Error with the problem and the accepted form.
InputSpec parse_input(const std::string& text);

// Normal floats, uniform integers and bools; the same for the same seed, rank, micro-batch and
// position, different otherwise.
at::Tensor make_input(const InputSpec& spec, std::int64_t seed, int rank, std::int64_t micro_batch,
                      std::size_t position);

}  // namespace ddp_doctor
