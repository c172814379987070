// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/module/tensor_view.h"

#include <cstring>

namespace ddp_doctor {
namespace {

at::Tensor as_bytes(const at::Tensor& tensor) {
  const auto there = tensor.contiguous();
  return at::from_blob(
      there.data_ptr(), {static_cast<std::int64_t>(there.nbytes())}, [there](void*) {},
      at::TensorOptions().dtype(at::kByte));
}

// Sparse gradients are compared as dense tensors.
at::Tensor strided(const at::Tensor& tensor) {
  return tensor.is_sparse() ? tensor.detach().to_dense() : tensor.detach();
}

at::Tensor readable(at::Tensor tensor) {
  tensor = strided(tensor);
  if (!tensor.device().is_cpu()) tensor = tensor.cpu();
  return seen_as_bytes(tensor.scalar_type()) ? as_bytes(tensor) : tensor;
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kBool:
      return "bool";
    default:
      return "uint8";
  }
}

bool seen_as_bytes(at::ScalarType dtype) {
  return dtype != at::kByte && dtype_name(dtype) == "uint8";
}

at::Tensor dense(const at::Tensor& tensor) { return strided(tensor).contiguous(); }

LocalTensor::LocalTensor(const at::Tensor& tensor) : tensor_(readable(tensor)) {}

TensorView LocalTensor::view() const {
  return {tensor_.data_ptr(),
          dtype_from_name(dtype_name(tensor_.scalar_type())),
          {tensor_.sizes().data(), tensor_.sizes().size()},
          {tensor_.strides().data(), tensor_.strides().size()}};
}

std::vector<std::uint8_t> LocalTensor::bytes() const {
  const auto there = tensor_.contiguous();
  std::vector<std::uint8_t> bytes(there.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), there.data_ptr(), bytes.size());
  return bytes;
}

}  // namespace ddp_doctor
