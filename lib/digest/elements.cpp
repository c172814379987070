// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ddp_doctor {
namespace {

template <class T>
T load(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// IEEE 754 binary16; every value is exactly representable as a double.
double from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0x1f) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 0x400, exponent - 25);
}

double from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace

double as_double(const void* at, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return load<float>(at);
    case DType::kFloat64:
      return load<double>(at);
    case DType::kFloat16:
      return from_half(load<std::uint16_t>(at));
    case DType::kBFloat16:
      return from_bfloat16(load<std::uint16_t>(at));
    case DType::kInt8:
      return load<std::int8_t>(at);
    case DType::kUInt8:
      return load<std::uint8_t>(at);
    case DType::kInt16:
      return load<std::int16_t>(at);
    case DType::kInt32:
      return load<std::int32_t>(at);
    case DType::kInt64:
      return static_cast<double>(load<std::int64_t>(at));
    case DType::kBool:
      return load<std::uint8_t>(at) != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

namespace {

const std::byte* element_at(const TensorView& tensor, std::int64_t position) {
  std::int64_t offset = 0;
  for (std::size_t d = tensor.sizes.size(); d-- > 0;) {
    offset += position % tensor.sizes[d] * tensor.strides[d];
    position /= tensor.sizes[d];
  }
  return static_cast<const std::byte*>(tensor.data) +
         offset * static_cast<std::int64_t>(element_size(tensor.dtype));
}

}  // namespace

SampledValues sample(const TensorView& tensor) {
  std::int64_t numel = 1;
  for (const std::int64_t size : tensor.sizes) numel *= size;
  constexpr auto kMax = static_cast<std::int64_t>(kSamplePositions);
  SampledValues values;
  for (std::int64_t k = 0; k < std::min(numel, kMax); ++k) {
    const std::int64_t position = numel <= kMax ? k : (2 * k + 1) * numel / (2 * kMax);
    values.push_back(as_double(element_at(tensor, position), tensor.dtype));
  }
  return values;
}

}  // namespace ddp_doctor
