// SPDX-License-Identifier: BSD-3-Clause
#include "probes/module/tensor_view.h"

#include <cstring>

namespace ddp_doctor {
namespace {

bool known(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kBool:
      return true;
    default:
      return false;
  }
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  const auto dense = tensor.contiguous();
  return at::from_blob(
      dense.data_ptr(), {static_cast<std::int64_t>(dense.nbytes())}, [dense](void*) {},
      at::TensorOptions().dtype(at::kByte));
}

// Sparse gradients are compared as the dense ones that they stand for.
at::Tensor readable(at::Tensor tensor) {
  tensor = tensor.detach();
  if (tensor.is_sparse()) tensor = tensor.to_dense();
  if (!tensor.device().is_cpu()) tensor = tensor.cpu();
  return known(tensor.scalar_type()) ? tensor : as_bytes(tensor);
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

LocalTensor::LocalTensor(const at::Tensor& tensor) : tensor_(readable(tensor)) {}

TensorView LocalTensor::view() const {
  return {tensor_.data_ptr(),
          dtype_from_name(dtype_name(tensor_.scalar_type())),
          {tensor_.sizes().data(), tensor_.sizes().size()},
          {tensor_.strides().data(), tensor_.strides().size()}};
}

std::vector<std::uint8_t> LocalTensor::bytes() const {
  const auto dense = tensor_.contiguous();
  std::vector<std::uint8_t> bytes(dense.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), dense.data_ptr(), bytes.size());
  return bytes;
}

}  // namespace ddp_doctor
