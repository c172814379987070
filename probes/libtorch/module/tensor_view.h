// SPDX-License-Identifier: BSD-3-Clause
// at::Tensor as lib/digest sees it.
#pragma once

#include <torch/script.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lib/digest/digest.h"

namespace ddp_doctor {

// A dtype that lib/digest does not know (complex, quantized, 8-bit floats) is read as bytes: its
// bits are compared, and its statistics are those of the bytes.
std::string dtype_name(at::ScalarType dtype);
bool seen_as_bytes(at::ScalarType dtype);

// The elements in row-major order where the tensor is, of sparse tensors the dense equivalent;
// detached.
at::Tensor dense(const at::Tensor& tensor);

// A tensor's elements in host memory; keeps them alive.
class LocalTensor {
 public:
  explicit LocalTensor(const at::Tensor& tensor);
  TensorView view() const;
  std::vector<std::uint8_t> bytes() const;  // row-major

 private:
  at::Tensor tensor_;
};

}  // namespace ddp_doctor
