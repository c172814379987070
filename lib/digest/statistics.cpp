// Left to itself a compiler must not reorder floating-point additions, so it would add one element
// after another. Here element i of a block goes to lane i % kLanes, and the loops over the lanes
// have no branch and a constant length: g++ -O2 turns them into vector code. The order is fixed by
// this and not by the width of a machine's registers, so every machine gets the same sums.

#include "lib/digest/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

namespace ddp_doctor {
namespace {

constexpr std::size_t kLanes = 32;

template <class Bits>
Bits load(const std::byte* elements, std::size_t index) {
  Bits bits;
  std::memcpy(&bits, elements + index * sizeof(Bits), sizeof bits);
  return bits;
}

// A floating-point format: where its bits without the sign stop being finite, and which value they
// are. Such bits order as their values do, so only the sum needs floating-point arithmetic.
struct Float64 {
  using Bits = std::int64_t;
  static constexpr Bits kSignless = 0x7fff'ffff'ffff'ffff;
  static constexpr Bits kInfinity = 0x7ff0'0000'0000'0000;
  static double value(Bits bits) { return std::bit_cast<double>(bits); }
};

struct Float32 {
  using Bits = std::int32_t;
  static constexpr Bits kSignless = 0x7fff'ffff;
  static constexpr Bits kInfinity = 0x7f80'0000;
  static float value(Bits bits) { return std::bit_cast<float>(bits); }
};

struct BFloat16 {
  using Bits = std::int16_t;
  static constexpr Bits kSignless = 0x7fff;
  static constexpr Bits kInfinity = 0x7f80;
  static float value(Bits bits) { return std::bit_cast<float>(std::int32_t{bits} << 16); }
};

struct Float16 {
  using Bits = std::int16_t;
  static constexpr Bits kSignless = 0x7fff;
  static constexpr Bits kInfinity = 0x7c00;
  // Moved to where float has exponent and mantissa. The factor corrects the bias of the exponent,
  // exactly and for subnormals too.
  static float value(Bits bits) {
    return std::bit_cast<float>(std::int32_t{bits} << 13) * 0x1p112F;
  }
};

template <class Integer>
struct Whole {
  using Bits = Integer;
  static double value(Bits bits) { return static_cast<double>(bits); }
};

struct Bool {
  using Bits = std::uint8_t;
  static double value(Bits bits) { return static_cast<double>(bits != 0); }
};

template <class Format>
struct FloatLanes {
  using Bits = typename Format::Bits;

  double squares[kLanes] = {};
  Bits largest[kLanes] = {};
  Bits finite[kLanes] = {};

  void add(const std::byte* elements) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const Bits bits = load<Bits>(elements, lane) & Format::kSignless;
      const Bits mask = -static_cast<Bits>(bits < Format::kInfinity);  // all ones if finite
      const Bits kept = bits & mask;
      finite[lane] -= mask;
      largest[lane] = std::max(largest[lane], kept);
      const double value = Format::value(kept);
      squares[lane] += value * value;
    }
  }

  double max_abs() const {
    return Format::value(*std::max_element(std::begin(largest), std::end(largest)));
  }

  std::int64_t nonfinite(std::int64_t added) const {
    return added - std::accumulate(std::begin(finite), std::end(finite), std::int64_t{0});
  }
};

template <class Format>
struct IntegerLanes {
  using Bits = typename Format::Bits;

  double squares[kLanes] = {};
  double largest[kLanes] = {};

  void add(const std::byte* elements) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = std::fabs(Format::value(load<Bits>(elements, lane)));
      largest[lane] = value > largest[lane] ? value : largest[lane];
      squares[lane] += value * value;
    }
  }

  double max_abs() const { return *std::max_element(std::begin(largest), std::end(largest)); }
  std::int64_t nonfinite(std::int64_t) const { return 0; }
};

template <class Lanes>
void add_lanes(const std::byte* block, std::size_t bytes, Statistics& statistics) {
  using Bits = typename Lanes::Bits;
  constexpr std::size_t kGroup = kLanes * sizeof(Bits);
  Lanes lanes;
  std::size_t at = 0;
  for (; at + kGroup <= bytes; at += kGroup) lanes.add(block + at);
  if (at < bytes) {  // padded with zeros, which change none of the figures
    std::byte padded[kGroup] = {};
    std::memcpy(padded, block + at, bytes - at);
    lanes.add(padded);
  }
  const auto added = static_cast<std::int64_t>((bytes + kGroup - 1) / kGroup * kLanes);
  statistics.sum_of_squares +=
      std::accumulate(std::begin(lanes.squares), std::end(lanes.squares), 0.0);
  statistics.max_abs = std::max(statistics.max_abs, lanes.max_abs());
  statistics.nonfinite += lanes.nonfinite(added);
}

inline void add_block_here(DType dtype, const std::byte* block, std::size_t bytes,
                           Statistics& statistics) {
  switch (dtype) {
    case DType::kFloat32:
      return add_lanes<FloatLanes<Float32>>(block, bytes, statistics);
    case DType::kFloat64:
      return add_lanes<FloatLanes<Float64>>(block, bytes, statistics);
    case DType::kFloat16:
      return add_lanes<FloatLanes<Float16>>(block, bytes, statistics);
    case DType::kBFloat16:
      return add_lanes<FloatLanes<BFloat16>>(block, bytes, statistics);
    case DType::kInt8:
      return add_lanes<IntegerLanes<Whole<std::int8_t>>>(block, bytes, statistics);
    case DType::kUInt8:
      return add_lanes<IntegerLanes<Whole<std::uint8_t>>>(block, bytes, statistics);
    case DType::kInt16:
      return add_lanes<IntegerLanes<Whole<std::int16_t>>>(block, bytes, statistics);
    case DType::kInt32:
      return add_lanes<IntegerLanes<Whole<std::int32_t>>>(block, bytes, statistics);
    case DType::kInt64:
      return add_lanes<IntegerLanes<Whole<std::int64_t>>>(block, bytes, statistics);
    case DType::kBool:
      return add_lanes<IntegerLanes<Bool>>(block, bytes, statistics);
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
// The same code in wider registers: lanes are added up one by one in either, so the figures are
// equal to the last bit. (No FMA, which would round otherwise.)
__attribute__((target("avx2"), flatten)) void add_block_avx2(DType dtype, const std::byte* block,
                                                             std::size_t bytes,
                                                             Statistics& statistics) {
  add_block_here(dtype, block, bytes, statistics);
}
#endif

}  // namespace

void add_block(DType dtype, const std::byte* block, std::size_t bytes, Statistics& statistics) {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool kWide = __builtin_cpu_supports("avx2") != 0;
  if (kWide) return add_block_avx2(dtype, block, bytes, statistics);
#endif
  add_block_here(dtype, block, bytes, statistics);
}

}  // namespace ddp_doctor
