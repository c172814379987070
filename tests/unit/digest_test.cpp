// SPDX-License-Identifier: BSD-3-Clause
// digest() against straightforward computations of the same: the hash of a copy in one piece per
// block, the figures with long double and ldexp; and its kernels against each other.

#include "lib/digest/digest.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lib/digest/kernel.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                          DType::kInt8,    DType::kUInt8,   DType::kInt16,   DType::kInt32,
                          DType::kInt64,   DType::kBool};

using Sizes = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

template <class T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

long double decode(std::uint16_t bits, int exponent_bits, int bias) {
  const int mantissa_bits = 15 - exponent_bits;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? std::numeric_limits<long double>::infinity()
                         : std::numeric_limits<long double>::quiet_NaN();
  }
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return std::ldexp(static_cast<long double>(whole), std::max(exponent, 1) - bias - mantissa_bits);
}

long double magnitude(const std::uint8_t* at, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return std::fabs(static_cast<long double>(load<float>(at)));
    case DType::kFloat64:
      return std::fabs(static_cast<long double>(load<double>(at)));
    case DType::kFloat16:
      return decode(load<std::uint16_t>(at), 5, 15);
    case DType::kBFloat16:
      return decode(load<std::uint16_t>(at), 8, 127);
    case DType::kInt8:
      return std::fabs(static_cast<long double>(load<std::int8_t>(at)));
    case DType::kUInt8:
      return load<std::uint8_t>(at);
    case DType::kInt16:
      return std::fabs(static_cast<long double>(load<std::int16_t>(at)));
    case DType::kInt32:
      return std::fabs(static_cast<long double>(load<std::int32_t>(at)));
    case DType::kInt64:
      return std::fabs(static_cast<long double>(load<std::int64_t>(at)));
    case DType::kBool:
      return load<std::uint8_t>(at) != 0 ? 1 : 0;
  }
  return -1;
}

std::array<std::uint8_t, 16> hash(const std::uint8_t* data, std::size_t bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
  return std::to_array(canonical.digest);
}

std::array<std::uint8_t, 16> hash_of_blocks(const Bytes& bytes) {
  constexpr std::size_t kBlockBytes = 8192;
  if (bytes.size() <= kBlockBytes) return hash(bytes.data(), bytes.size());
  Bytes hashes;
  for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const auto block = hash(bytes.data() + at, std::min(kBlockBytes, bytes.size() - at));
    hashes.insert(hashes.end(), block.begin(), block.end());
  }
  return hash(hashes.data(), hashes.size());
}

// What digest() must say of contiguous `bytes`.
TensorDigest naive(const Bytes& bytes, DType dtype) {
  TensorDigest expected;
  expected.bits = hash_of_blocks(bytes);
  expected.numel = static_cast<std::int64_t>(bytes.size() / element_size(dtype));
  long double squares = 0;
  for (std::size_t at = 0; at < bytes.size(); at += element_size(dtype)) {
    const long double value = magnitude(bytes.data() + at, dtype);
    if (!std::isfinite(value)) {
      ++expected.nonfinite;
      continue;
    }
    squares += value * value;
    expected.max_abs = std::max(expected.max_abs, static_cast<double>(value));
  }
  expected.l2_norm = static_cast<double>(std::sqrt(squares));
  return expected;
}

// `precision` of the norm: types of 16 and 32 bits are partly added up as floats.
void expect_equal(const TensorDigest& actual, const TensorDigest& expected,
                  double precision = 1e-6) {
  EXPECT_EQ(to_hex(actual.bits), to_hex(expected.bits));
  EXPECT_EQ(actual.numel, expected.numel);
  EXPECT_EQ(actual.nonfinite, expected.nonfinite);
  EXPECT_EQ(actual.max_abs, expected.max_abs);
  EXPECT_NEAR(actual.l2_norm, expected.l2_norm, precision * expected.l2_norm);
}

Sizes row_major(const Sizes& sizes) {
  Sizes strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

Bytes random_bytes(std::size_t count, DType dtype) {
  std::mt19937_64 random(count);
  Bytes bytes(count * element_size(dtype));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  if (dtype == DType::kFloat64) {  // keeps squares away from double's limits
    for (std::size_t i = 7; i < bytes.size(); i += 8) bytes[i] = (bytes[i] & 0x80) | 0x3f;
  }
  if (dtype == DType::kBool) {
    for (auto& byte : bytes) byte &= 1;
  }
  return bytes;
}

TensorDigest digest_of(const Bytes& bytes, DType dtype) {
  const Sizes sizes = {static_cast<std::int64_t>(bytes.size() / element_size(dtype))};
  const Sizes strides = {1};
  return digest({bytes.data(), dtype, sizes, strides});
}

template <class T>
TensorDigest digest_of(const std::vector<T>& elements, DType dtype) {
  Bytes bytes(elements.size() * sizeof(T));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return digest_of(bytes, dtype);
}

// The elements that a view shows, in row-major order, copied one by one.
Bytes materialize(const TensorView& view) {
  const std::size_t size = element_size(view.dtype);
  std::int64_t numel = 1;
  for (const std::int64_t n : view.sizes) numel *= n;
  Bytes copy;
  for (std::int64_t i = 0; i < numel; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t d = view.sizes.size(); d-- > 0;) {
      offset += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    const auto* at = static_cast<const std::uint8_t*>(view.data) + offset * std::ptrdiff_t(size);
    copy.insert(copy.end(), at, at + size);
  }
  return copy;
}

TEST(Digest, AgreesWithANaiveComputationForEveryDtypeAroundBlockBoundaries) {
  for (const DType dtype : kAll) {
    const auto block = kBlock / element_size(dtype);
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{2}, std::size_t{31}, std::size_t{32}, std::size_t{33},
          std::size_t{1000}, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1,
          5 * block + 17}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " x " + std::to_string(count));
      const Bytes bytes = random_bytes(count, dtype);
      const bool exact = dtype != DType::kFloat32 && element_size(dtype) != 2;
      expect_equal(digest_of(bytes, dtype), naive(bytes, dtype), exact ? 1e-12 : 1e-6);
    }
  }
}

TEST(Digest, IsTheSameForEveryInstructionSetLengthAlignmentAndStride) {
  std::mt19937_64 random(1);
  for (const DType dtype : kAll) {
    const auto element = element_size(dtype);
    const Bytes elements = random_bytes(3 * 4097 + 64, dtype);
    std::vector<Bytes> shifted(8);
    for (std::size_t by = 0; by < shifted.size(); ++by) {
      shifted[by].resize(by);
      shifted[by].insert(shifted[by].end(), elements.begin(), elements.end());
    }
    for (std::int64_t length = 0; length <= 4096; ++length) {
      const std::int64_t stride = length % 3 + 1;
      const auto by = random() % shifted.size();
      const auto offset = by + random() % 64 * element;
      const Sizes sizes = {length};
      const Sizes strides = {stride};
      const TensorView view{shifted[by].data() + offset, dtype, sizes, strides};
      const TensorDigest expected = digest_with(*kernels().front(), view);
      for (const Kernel* kernel : kernels()) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " x " + std::to_string(length) + " / " +
                     std::to_string(stride) + " at " + std::to_string(offset) + ", " +
                     kernel->name);
        const TensorDigest actual = digest_with(*kernel, view);
        ASSERT_EQ(to_hex(actual.bits), to_hex(expected.bits));
        ASSERT_EQ(std::bit_cast<std::uint64_t>(actual.l2_norm),
                  std::bit_cast<std::uint64_t>(expected.l2_norm));
        ASSERT_EQ(actual.max_abs, expected.max_abs);
        ASSERT_EQ(actual.nonfinite, expected.nonfinite);
      }
      if (length % 64 < 3) expect_equal(expected, naive(materialize(view), dtype));
    }
  }
}

// What floats cannot hold the squares of, and what they can only just.
TEST(Digest, KeepsTheNormOfVerySmallAndVeryLargeFloats) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    std::vector<float> values(3000, std::ldexp(1.0F, exponent));
    values[5] = -values[5];
    values[6] = 0;
    values[7] = std::ldexp(1.0F, -149);
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    SCOPED_TRACE(exponent);
    expect_equal(digest_of(values, DType::kFloat32), naive(bytes, DType::kFloat32));
  }
}

TEST(Digest, OfAViewEqualsThatOfItsContiguousCopy) {
  struct Shape {
    const char* name;
    Sizes sizes, strides;
    std::int64_t offset;
  };
  const Shape shapes[] = {
      {"0-dim", {}, {}, 5},
      {"transposed", {150, 200}, {1, 150}, 0},
      {"permuted", {20, 30, 50}, {30, 1, 600}, 0},
      {"rows", {90, 200}, {200, 1}, 400},
      {"columns", {150, 30}, {200, 1}, 7},
      {"every other element", {15000}, {2}, 1},
      {"every other row", {75, 200}, {400, 1}, 0},
      {"expanded row", {100, 200}, {0, 1}, 3},
      {"expanded column", {150, 200}, {1, 0}, 3},
      {"expanded scalar", {7, 3000}, {0, 0}, 11},
      {"overlapping", {100, 300}, {1, 1}, 0},
      {"size-1 dimensions", {1, 150, 1, 200, 1}, {9999, 200, 77, 1, 31}, 0},
      {"channels last", {4, 8, 10, 12}, {960, 1, 96, 8}, 0},
      {"reversed", {30000}, {-1}, 29999},
  };
  for (const DType dtype : kAll) {
    const Bytes storage = random_bytes(30000, dtype);
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + shape.name);
      const auto* data = storage.data() + shape.offset * std::int64_t(element_size(dtype));
      const TensorView view{data, dtype, shape.sizes, shape.strides};
      const Bytes copy = materialize(view);
      const TensorDigest actual = digest(view);
      expect_equal(actual, naive(copy, dtype));
      // Not near: the same to the bit.
      EXPECT_EQ(actual.l2_norm, digest_of(copy, dtype).l2_norm);
    }
  }
}

TEST(Digest, ReadsUnalignedElements) {
  for (const DType dtype : kAll) {
    const Bytes bytes = random_bytes(5000, dtype);
    Bytes shifted(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    const Sizes sizes = {5000};
    const Sizes strides = {1};
    expect_equal(digest({shifted.data() + 1, dtype, sizes, strides}), naive(bytes, dtype));
  }
}

TEST(Digest, IsTheSameWhateverWasThoughtProbable) {
  const Bytes bytes = random_bytes(5000, DType::kFloat32);
  Bytes other = bytes;
  other.back() ^= 1;
  const Sizes sizes = {5000};
  const Sizes strides = {1};
  const TensorView view{bytes.data(), DType::kFloat32, sizes, strides};
  const TensorDigest expected = digest(view);
  expect_equal(digest(view, expected), expected);
  expect_equal(digest(view, digest_of(other, DType::kFloat32)), expected);
  expect_equal(digest(view, TensorDigest{}), expected);
}

TEST(Digest, OfNoElementsNeedsNoData) {
  for (const Sizes& sizes : {Sizes{0}, Sizes{3, 0}, Sizes{0, 5}}) {
    const TensorDigest empty = digest({nullptr, DType::kFloat32, sizes, row_major(sizes)});
    expect_equal(empty, naive({}, DType::kFloat32));
    EXPECT_EQ(empty.l2_norm, 0.0);
  }
}

TEST(Digest, TellsMinusZeroFromZeroAndNanPayloadsApart) {
  const auto bits = [](std::uint32_t word) {
    return digest_of(std::vector<std::uint32_t>{0x3f800000, word}, DType::kFloat32).bits;
  };
  EXPECT_NE(bits(0x00000000), bits(0x80000000));
  EXPECT_NE(bits(0x7fc00000), bits(0x7fc00001));
  EXPECT_NE(bits(0x7fc00000), bits(0xffc00000));
  EXPECT_EQ(bits(0x7fc00001), bits(0x7fc00001));
}

TEST(Digest, DependsOnTheOrderOfElements) {
  EXPECT_NE(digest_of(std::vector<float>{1, 2}, DType::kFloat32).bits,
            digest_of(std::vector<float>{2, 1}, DType::kFloat32).bits);
}

TEST(Digest, CountsNanAndInfinityAndLeavesThemOutOfTheFigures) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const TensorDigest actual =
      digest_of(std::vector<double>{3, nan, -4, inf, -inf, -nan}, DType::kFloat64);
  EXPECT_EQ(actual.nonfinite, 4);
  EXPECT_EQ(actual.l2_norm, 5.0);
  EXPECT_EQ(actual.max_abs, 4.0);
}

TEST(Digest, KnowsEveryHalfAndBFloat16) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int bits = 0; bits < 65536; ++bits) {
      Bytes bytes(2);
      const auto word = static_cast<std::uint16_t>(bits);
      std::memcpy(bytes.data(), &word, 2);
      const TensorDigest actual = digest_of(bytes, dtype);
      const long double value = magnitude(bytes.data(), dtype);
      ASSERT_EQ(actual.nonfinite, std::isfinite(value) ? 0 : 1) << std::hex << bits;
      if (std::isfinite(value)) {
        ASSERT_EQ(actual.max_abs, static_cast<double>(value)) << std::hex << bits;
        ASSERT_EQ(actual.l2_norm, static_cast<double>(value)) << std::hex << bits;
      }
    }
  }
}

TEST(Digest, KnowsTheLargestIntegers) {
  EXPECT_EQ(digest_of(std::vector<std::int8_t>{-128, 1}, DType::kInt8).max_abs, 128.0);
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(digest_of(std::vector<std::int64_t>{lowest, 0}, DType::kInt64).max_abs, 0x1p63);
}

TEST(Digest, IgnoresAndKeepsTheCallersFloatingPointEnvironment) {
  const std::vector<std::uint32_t> subnormals(100, 0x80000003);
  const TensorDigest expected = digest_of(subnormals, DType::kFloat32);
  EXPECT_GT(expected.l2_norm, 0.0);
  std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before |
                         0x8040U);  // subnormals are zero, as torch.set_flush_denormal(True)
#endif
  std::feclearexcept(FE_ALL_EXCEPT);
  const TensorDigest actual = digest_of(subnormals, DType::kFloat32);
  const int raised = std::fetestexcept(FE_ALL_EXCEPT);
  const int rounding = std::fegetround();
#if defined(__SSE2__)
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(after & 0x8040U, 0x8040U);
#endif
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(actual.l2_norm, expected.l2_norm);
  EXPECT_EQ(actual.max_abs, expected.max_abs);
  EXPECT_EQ(raised, 0);
  EXPECT_EQ(rounding, FE_UPWARD);
}

TEST(Digest, RefusesViewsThatMakeNoSense) {
  const float data[2] = {};
  const Sizes two = {2};
  const Sizes negative = {-2};
  const Sizes none = {};
  EXPECT_THROW(digest({data, DType::kFloat32, two, none}), Error);
  EXPECT_THROW(digest({data, DType::kFloat32, negative, two}), Error);
  EXPECT_THROW(digest({nullptr, DType::kFloat32, two, two}), Error);
  const Sizes huge = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_THROW(digest({data, DType::kFloat32, huge, row_major({1, 1})}), Error);
}

TEST(DTypeNames, AreThoseOfPyTorchAndInvert) {
  for (const DType dtype : kAll) EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  EXPECT_EQ(name_of(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(name_of(DType::kBool), "bool");
  try {
    dtype_from_name("complex64");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'complex64'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
  }
}

TEST(ToHex, WritesTheCanonicalOrder) {
  std::array<std::uint8_t, 16> bits{};
  bits[0] = 0xab;
  bits[15] = 0x01;
  EXPECT_EQ(to_hex(bits), "ab000000000000000000000000000001");
  // The published XXH3-128 of no bytes.
  EXPECT_EQ(to_hex(digest_of(Bytes{}, DType::kUInt8).bits), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace ddp_doctor
