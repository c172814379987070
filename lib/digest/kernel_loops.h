// SPDX-License-Identifier: BSD-3-Clause
// The loops of a Kernel, in the widest registers that the including file is compiled for. All of it
// is internal to that file, and calls nothing that the linker could take from another one: that
// might be compiled for instructions that this processor lacks.
//
// A compiler must not reorder floating-point additions. Here element i of a block goes to lane i %
// kLanes, in every file, a lane adds its elements in their order, and a product is fused with a sum
// only where the product is exact, so that all files get bit-identical statistics.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#include <cstring>
#include <experimental/simd>
#include <utility>

#include "lib/digest/kernel_sets.h"

namespace ddp_doctor {
namespace {

namespace simd = std::experimental;

std::array<std::uint8_t, 16> canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::array<std::uint8_t, 16> result;
  std::memcpy(&result, &canonical, sizeof canonical);
  return result;
}

std::array<std::uint8_t, 16> hash(const void* data, std::size_t bytes) {
  return canonical(XXH3_128bits(data, bytes));
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls row(at) for each `kRow` bytes of the block; the last ones are padded with zeros, which
// change none of the figures.
template <std::size_t kRow, class Row>
inline void for_each_row(const std::byte* block, std::size_t bytes, Row row) {
  std::size_t at = 0;
  for (; at + kRow <= bytes; at += kRow) row(block + at);
  if (at < bytes) {
    std::byte padded[kRow] = {};
    std::memcpy(padded, block + at, bytes - at);
    row(padded);
  }
}

// ---- float32, float16, bfloat16: squares as floats, some of them added up before they become
// doubles

constexpr std::size_t kRow = 128;  // bytes: 32 words
constexpr std::size_t kLanes = kRow / sizeof(float);
constexpr int kRowsInFloat = 16;  // whose squares are added as floats, then as doubles
constexpr int kMaxScale = 126;    // of a normal float

using Words = simd::native_simd<std::int32_t>;
using Floats = simd::native_simd<float>;
static_assert(sizeof(Words) == sizeof(Floats));

// `sum` plus the squares. Those of types of 16 bits have 16 or 22 significant bits, so a float
// holds them (but for bfloat16's below 2^-126, which do not count beside what kSmallest demands).
template <class Format>
__attribute__((always_inline)) inline Floats with_squares(Floats sum, Floats values) {
#if defined(__FMA__) && defined(__AVX2__)
  if constexpr (sizeof(typename Format::Bits) == 2) {
    const auto all = static_cast<__m256>(values);
    return Floats(_mm256_fmadd_ps(all, all, static_cast<__m256>(sum)));
  }
#endif
  return sum + values * values;
}

// The magnitude's bits order as the values do. `values` are those in a register of words. If the
// largest magnitude is of kSmallest to kLargest, 2^-30 to 2^50, squares can be added as they are:
// what is lost of smaller ones does not count.
struct Float32 {
  using Bits = std::int32_t;
  static constexpr Bits kSignless = 0x7fff'ffff;
  static constexpr Bits kInfinity = 0x7f80'0000;
  static constexpr Bits kSmallest = 0x3080'0000;
  static constexpr Bits kLargest = 0x5880'0000;
  static float value(Bits bits) { return __builtin_bit_cast(float, bits); }
  template <class Add>
  __attribute__((always_inline)) static void values(Words words, Add add) {
    add(__builtin_bit_cast(Floats, words));
  }
};

struct BFloat16 {
  using Bits = std::int16_t;
  static constexpr Bits kSignless = 0x7fff;
  static constexpr Bits kInfinity = 0x7f80;
  static constexpr Bits kSmallest = 0x3080;
  static constexpr Bits kLargest = 0x5880;
  static float value(Bits bits) { return __builtin_bit_cast(float, std::int32_t{bits} << 16); }
  template <class Add>
  __attribute__((always_inline)) static void values(Words words, Add add) {
    add(__builtin_bit_cast(Floats, Words(words << 16)));
    add(__builtin_bit_cast(Floats, Words(words & Words(-0x1'0000))));
  }
};

// Moved to where float has exponent and mantissa; the factor then corrects the exponent's bias,
// exactly and for subnormals too.
struct Float16 {
  using Bits = std::int16_t;
  static constexpr Bits kSignless = 0x7fff;
  static constexpr Bits kInfinity = 0x7c00;
  static constexpr Bits kSmallest = 1;
  static constexpr Bits kLargest = kInfinity - 1;
  static float value(Bits bits) {
    return __builtin_bit_cast(float, std::int32_t{bits} << 13) * 0x1p112F;
  }
  template <class Add>
  __attribute__((always_inline)) static void values(Words words, Add add) {
    add(__builtin_bit_cast(Floats, Words((words & Words(0x7fff)) << 13)) * 0x1p112F);
    add(__builtin_bit_cast(Floats, Words((words & Words(0x7fff'0000)) >> 3)) * 0x1p112F);
  }
};

template <class Format>
struct Figures {
  typename Format::Bits largest;
  double squares;
};

// Of values times `scale`, which must be 1 unless kScaled.
template <class Format, bool kScaled>
class FiguresSum {
 public:
  __attribute__((always_inline)) explicit FiguresSum(float scale) : scale_(scale) {}

  // Has `next`, as many bytes, fetched.
  __attribute__((always_inline)) void add_row(const std::byte* row, const std::byte* next) {
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(next + kRow / 2, 0, 2);
    add_registers(row, std::make_index_sequence<kRegisters>());
  }

  // After each kRowsInFloat rows, and the last one.
  __attribute__((always_inline)) void widen() {
    float added[kLanes];
    store(added, std::make_index_sequence<kRegisters>());
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums_[lane] += added[lane];
  }

  __attribute__((always_inline)) Figures<Format> figures() const {
    double sum = 0.0;
    for (const double lane : sums_) sum += lane;
    return {simd::hmax(largest_), sum};
  }

 private:
  using Magnitudes = simd::native_simd<typename Format::Bits>;
  static constexpr std::size_t kRegisters = kRow / sizeof(Words);

  // No loops: GCC would unroll them too late to keep the sums in registers.
  template <std::size_t... kNumber>
  __attribute__((always_inline)) void store(float* added, std::index_sequence<kNumber...> /*all*/) {
    (squares_[kNumber].copy_to(added + kNumber * Floats::size(), simd::element_aligned), ...);
    ((squares_[kNumber] = 0.0F), ...);
  }

  template <std::size_t... kNumber>
  __attribute__((always_inline)) void add_registers(const std::byte* row,
                                                    std::index_sequence<kNumber...> /*all*/) {
    (add_register<kNumber>(row), ...);
  }

  template <std::size_t kNumber>
  __attribute__((always_inline)) void add_register(const std::byte* row) {
    const Words words(reinterpret_cast<const std::int32_t*>(row) + kNumber * Words::size(),
                      simd::element_aligned);
    const auto bits = __builtin_bit_cast(Magnitudes, words);
    largest_ = simd::max(largest_, bits & Magnitudes(Format::kSignless));
    Format::values(
        words, [&](Floats values) __attribute__((always_inline)) {
          if constexpr (kScaled) values *= scale_;
          squares_[kNumber] = with_squares<Format>(squares_[kNumber], values);
        });
  }

  const float scale_;
  Magnitudes largest_ = {};
  Floats squares_[kRegisters] = {};
  double sums_[kLanes] = {};
};

template <class Format, bool kScaled>
Figures<Format> figures_of(const std::byte* block, std::size_t bytes, float scale) {
  FiguresSum<Format, kScaled> sum(scale);
  for (std::size_t at = 0; at < bytes; at += kRowsInFloat * kRow) {
    const std::size_t left = bytes - at;
    for_each_row<kRow>(
        block + at, left < kRowsInFloat * kRow ? left : kRowsInFloat * kRow,
        [&](const std::byte* row) __attribute__((always_inline)) { sum.add_row(row, row); });
    sum.widen();
  }
  return sum.figures();
}

// XXH3-128 of a whole block, stripe by stripe: what XXH3_hashLong_128b_internal does, laid open so
// that something else can be done with a stripe while it is in registers.
class BlockHash {
 public:
  static constexpr std::size_t kStripe = XXH_STRIPE_LEN;
  static constexpr std::size_t kStripesInRound = 16;  // from one scrambling to the next
  static constexpr std::size_t kRounds = kBlock / (kStripesInRound * kStripe);
  static_assert(kStripesInRound == (XXH_SECRET_DEFAULT_SIZE - kStripe) / XXH_SECRET_CONSUME_RATE);

  // `number`: of the stripe within its round.
  __attribute__((always_inline)) void add(const std::byte* stripe, std::size_t number) {
    XXH3_accumulate_512(sums_, stripe, XXH3_kSecret + number * XXH_SECRET_CONSUME_RATE);
  }
  __attribute__((always_inline)) void add_last(const std::byte* stripe) {
    XXH3_accumulate_512(sums_, stripe, kEnd - kStripe - XXH_SECRET_LASTACC_START);
  }
  // After each round but the last.
  __attribute__((always_inline)) void scramble() { XXH3_scrambleAcc(sums_, kEnd - kStripe); }

  std::array<std::uint8_t, 16> finish() const {
    XXH128_hash_t hash;
    hash.low64 =
        XXH3_mergeAccs(sums_, XXH3_kSecret + XXH_SECRET_MERGEACCS_START, kBlock * XXH_PRIME64_1);
    hash.high64 = XXH3_mergeAccs(sums_, kEnd - sizeof sums_ - XXH_SECRET_MERGEACCS_START,
                                 ~(kBlock * XXH_PRIME64_2));
    return canonical(hash);
  }

 private:
  static constexpr const xxh_u8* kEnd = XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE;
  alignas(64) xxh_u64 sums_[XXH_ACC_NB] = XXH3_INIT_ACC;
};

// Hash and figures of a whole block, a row at a time: each alone leaves units of the core idle that
// the other one uses.
template <class Format>
Figures<Format> hash_and_figures(const std::byte* block, const std::byte* next,
                                 std::array<std::uint8_t, 16>& hash) {
  constexpr std::size_t kStripesInRow = kRow / BlockHash::kStripe;
  constexpr std::size_t kRowsInRound = BlockHash::kStripesInRound / kStripesInRow;
  static_assert(kStripesInRow == 2 && kRowsInFloat % kRowsInRound == 0);
  BlockHash hashed;
  FiguresSum<Format, false> sum(1.0F);
  for (std::size_t round = 0; round < BlockHash::kRounds; ++round) {
    if (round > 0) hashed.scramble();
    for (std::size_t row = 0; row < kRowsInRound; ++row) {
      hashed.add(block, 2 * row);
      if (round + 1 < BlockHash::kRounds || row + 1 < kRowsInRound) {
        hashed.add(block + BlockHash::kStripe, 2 * row + 1);
      } else {
        hashed.add_last(block + BlockHash::kStripe);
      }
      sum.add_row(block, next);
      block += kRow;
      next += kRow;
    }
    if ((round + 1) * kRowsInRound % kRowsInFloat == 0) sum.widen();
  }
  hash = hashed.finish();
  return sum.figures();
}

// Copies the block with zeros for values that are not finite; returns their number.
template <class Format>
std::int64_t leave_out_nonfinite(const std::byte* block, std::size_t bytes, std::byte* copy) {
  using Bits = typename Format::Bits;
  std::int64_t nonfinite = 0;
  for (std::size_t at = 0; at < bytes; at += sizeof(Bits)) {
    Bits bits = load<Bits>(block + at);
    if ((bits & Format::kSignless) >= Format::kInfinity) {
      ++nonfinite;
      bits = 0;
    }
    std::memcpy(copy + at, &bits, sizeof bits);
  }
  return nonfinite;
}

// The second pass that few blocks need: if a value is not finite, or squares may exceed the range
// of floats.
template <class Format>
__attribute__((noinline)) Figures<Format> figures_again(Figures<Format> figures,
                                                        const std::byte* block, std::size_t bytes,
                                                        std::int64_t& nonfinite) {
  std::byte copy[kBlock];
  if (figures.largest >= Format::kInfinity) {
    nonfinite += leave_out_nonfinite<Format>(block, bytes, copy);
    block = copy;
    figures = figures_of<Format, false>(block, bytes, 1.0F);
  }
  const float max_abs = Format::value(figures.largest);
  if (max_abs == 0.0F) return {0, 0.0};
  int scale = -__builtin_ilogbf(max_abs);
  if (scale > kMaxScale) scale = kMaxScale;
  figures = figures_of<Format, true>(block, bytes, __builtin_ldexpf(1.0F, scale));
  figures.squares = __builtin_ldexp(figures.squares, -2 * scale);
  return figures;
}

template <class Format>
std::array<std::uint8_t, 16> digest_block_as(const std::byte* block, std::size_t bytes,
                                             const std::byte* next, Statistics& statistics) {
  std::array<std::uint8_t, 16> hashed;
  Figures<Format> figures;
  if (bytes == kBlock) {
    figures = hash_and_figures<Format>(block, next, hashed);
  } else {
    hashed = hash(block, bytes);
    figures = figures_of<Format, false>(block, bytes, 1.0F);
  }
  if (figures.largest < Format::kSmallest || figures.largest > Format::kLargest) {
    figures = figures_again(figures, block, bytes, statistics.nonfinite);
  }
  const double max_abs = Format::value(figures.largest);
  if (max_abs > statistics.max_abs) statistics.max_abs = max_abs;
  statistics.sum_of_squares += figures.squares;
  return hashed;
}

// ---- float64

struct Float64 {
  using Bits = std::int64_t;
  static constexpr Bits kSignless = 0x7fff'ffff'ffff'ffff;
  static constexpr Bits kInfinity = 0x7ff0'0000'0000'0000;
};

Statistics figures_of_doubles(const std::byte* block, std::size_t bytes, const std::byte* next) {
  using Doubles = simd::native_simd<double>;
  constexpr std::size_t kRegisters = kRow / sizeof(Doubles);
  Doubles largest = {};
  Doubles squares[kRegisters] = {};
  for_each_row<kRow>(
      block, bytes, [&](const std::byte* row) __attribute__((always_inline)) {
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + kRow / 2, 0, 2);
        next += kRow;
        for (std::size_t i = 0; i < kRegisters; ++i) {
          const Doubles values(reinterpret_cast<const double*>(row) + i * Doubles::size(),
                               simd::element_aligned);
          largest = simd::max(largest, simd::abs(values));
          squares[i] += values * values;
        }
      });
  double added[kRow / sizeof(double)];
  for (std::size_t i = 0; i < kRegisters; ++i) {
    squares[i].copy_to(added + i * Doubles::size(), simd::element_aligned);
  }
  Statistics figures;
  for (const double lane : added) figures.sum_of_squares += lane;
  figures.max_abs = simd::hmax(largest);
  return figures;
}

void add_doubles(const std::byte* block, std::size_t bytes, const std::byte* next,
                 Statistics& statistics) {
  Statistics figures = figures_of_doubles(block, bytes, next);
  if (!__builtin_isfinite(figures.sum_of_squares)) {
    std::byte copy[kBlock];
    statistics.nonfinite += leave_out_nonfinite<Float64>(block, bytes, copy);
    figures = figures_of_doubles(copy, bytes, copy);
  }
  statistics.sum_of_squares += figures.sum_of_squares;
  if (figures.max_abs > statistics.max_abs) statistics.max_abs = figures.max_abs;
}

// ---- integers, of which there are few: one after another in each lane

template <class Integer>
struct Whole {
  using Element = Integer;
  static double magnitude(Element element) { return __builtin_fabs(static_cast<double>(element)); }
};

struct Bool {
  using Element = std::uint8_t;
  static double magnitude(Element element) { return element != 0 ? 1.0 : 0.0; }
};

template <class Format>
void add_integers(const std::byte* block, std::size_t bytes, Statistics& statistics) {
  using Element = typename Format::Element;
  double squares[kLanes] = {};
  double largest[kLanes] = {};
  for_each_row<kLanes * sizeof(Element)>(block, bytes, [&](const std::byte* row) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = Format::magnitude(load<Element>(row + lane * sizeof(Element)));
      largest[lane] = value > largest[lane] ? value : largest[lane];
      squares[lane] += value * value;
    }
  });
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    statistics.sum_of_squares += squares[lane];
    if (largest[lane] > statistics.max_abs) statistics.max_abs = largest[lane];
  }
}

void add_others(DType dtype, const std::byte* block, std::size_t bytes, const std::byte* next,
                Statistics& statistics) {
  switch (dtype) {
    case DType::kFloat64:
      return add_doubles(block, bytes, next, statistics);
    case DType::kInt8:
      return add_integers<Whole<std::int8_t>>(block, bytes, statistics);
    case DType::kUInt8:
      return add_integers<Whole<std::uint8_t>>(block, bytes, statistics);
    case DType::kInt16:
      return add_integers<Whole<std::int16_t>>(block, bytes, statistics);
    case DType::kInt32:
      return add_integers<Whole<std::int32_t>>(block, bytes, statistics);
    case DType::kInt64:
      return add_integers<Whole<std::int64_t>>(block, bytes, statistics);
    default:
      return add_integers<Bool>(block, bytes, statistics);
  }
}

std::array<std::uint8_t, 16> digest_block(DType dtype, const std::byte* block, std::size_t bytes,
                                          const std::byte* next, Statistics& statistics) {
  switch (dtype) {
    case DType::kFloat32:
      return digest_block_as<Float32>(block, bytes, next, statistics);
    case DType::kFloat16:
      return digest_block_as<Float16>(block, bytes, next, statistics);
    case DType::kBFloat16:
      return digest_block_as<BFloat16>(block, bytes, next, statistics);
    default:
      add_others(dtype, block, bytes, next, statistics);
      return hash(block, bytes);
  }
}

}  // namespace
}  // namespace ddp_doctor
