#include "lib/timeline/drift.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ddp_doctor {
namespace {

template <class T>
T load(const std::uint8_t* bytes) {
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

double element(const std::uint8_t* at, DType dtype) {
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

}  // namespace

std::vector<double> to_doubles(std::span<const std::uint8_t> bytes, DType dtype) {
  const std::size_t size = element_size(dtype);
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = element(bytes.data() + i * size, dtype);
  return values;
}

double max_abs_difference(const std::vector<std::vector<double>>& replicas) {
  double largest = 0.0;
  for (std::size_t i = 0; i < replicas.front().size(); ++i) {
    double low = replicas.front()[i];
    double high = low;
    std::size_t nans = 0;
    for (const auto& replica : replicas) {
      if (std::isnan(replica[i])) ++nans;
      low = std::fmin(low, replica[i]);
      high = std::fmax(high, replica[i]);
    }
    if (nans == replicas.size()) continue;
    if (nans > 0) return std::numeric_limits<double>::quiet_NaN();
    if (low == high) continue;  // also equal infinities, whose difference would be NaN
    largest = std::fmax(largest, high - low);
  }
  return largest;
}

}  // namespace ddp_doctor
