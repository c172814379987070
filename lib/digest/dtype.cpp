// SPDX-License-Identifier: BSD-3-Clause
#include <iterator>

#include "lib/digest/digest.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

struct Description {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

// In the order of the enumerators.
constexpr Description kDescriptions[] = {
    {DType::kFloat32, "float32", 4}, {DType::kFloat64, "float64", 8},
    {DType::kFloat16, "float16", 2}, {DType::kBFloat16, "bfloat16", 2},
    {DType::kInt8, "int8", 1},       {DType::kUInt8, "uint8", 1},
    {DType::kInt16, "int16", 2},     {DType::kInt32, "int32", 4},
    {DType::kInt64, "int64", 8},     {DType::kBool, "bool", 1},
};

const Description& describe(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= std::size(kDescriptions)) {
    throw Error("dtype number " + std::to_string(index) +
                " is not supported by digests: exclude this tensor from the examination");
  }
  return kDescriptions[index];
}

}  // namespace

std::size_t element_size(DType dtype) { return describe(dtype).size; }

std::string_view name_of(DType dtype) { return describe(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (const Description& description : kDescriptions) {
    if (description.name == name) return description.dtype;
  }
  std::string known;
  for (const Description& description : kDescriptions) {
    known += known.empty() ? "" : ", ";
    known += description.name;
  }
  throw Error("dtype '" + std::string(name) + "' is not supported by digests: give a tensor of " +
              known + ", or exclude this one from the examination");
}

}  // namespace ddp_doctor
