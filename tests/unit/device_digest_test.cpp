// SPDX-License-Identifier: BSD-3-Clause
// What a GPU does to tensors, done by a warp of threads, against digest(), sample() and the bytes.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lib/digest/digest.h"
#include "tests/unit/warp_fixture.h"

namespace ddp_doctor::cuda {
namespace {

using Bytes = std::vector<std::uint8_t>;

TensorView view_of(const DeviceTensor& tensor, const std::int64_t& one) {
  return {tensor.data, tensor.dtype, {&tensor.numel, 1}, {&one, 1}};
}

void expect_as_the_cpu_sees_it(const std::vector<DeviceTensor>& tensors) {
  const FoundByCpu found(tensors, true);
  constexpr std::int64_t kOne = 1;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(std::string(name_of(tensors[i].dtype)) + " of " +
                 std::to_string(tensors[i].numel) + " elements, number " + std::to_string(i));
    const TensorView view = view_of(tensors[i], kOne);
    const TensorDigest expected = digest(view);
    const DeviceDigest result = found.result(i);
    EXPECT_EQ(to_hex(result.digest.bits), to_hex(expected.bits));
    EXPECT_EQ(result.digest.numel, expected.numel);
    EXPECT_EQ(result.digest.nonfinite, expected.nonfinite);
    EXPECT_EQ(result.digest.max_abs, expected.max_abs);
    if (std::isinf(expected.l2_norm)) {  // squares of float64
      EXPECT_EQ(result.digest.l2_norm, expected.l2_norm);
    } else {
      EXPECT_NEAR(result.digest.l2_norm, expected.l2_norm, 1e-6 * expected.l2_norm);
    }
    const auto samples = sample(view);
    ASSERT_EQ(result.samples.size(), samples.size());
    for (std::size_t k = 0; k < samples.size(); ++k)
      EXPECT_EQ(std::bit_cast<std::uint64_t>(result.samples[k]),
                std::bit_cast<std::uint64_t>(samples[k]));
    const auto bytes = static_cast<std::size_t>(tensors[i].numel) * element_size(view.dtype);
    ASSERT_EQ(result.copy.size(), bytes);
    EXPECT_TRUE(bytes == 0 || std::memcmp(result.copy.data(), view.data, bytes) == 0);
  }
}

// Any bits at all: infinities, NaNs and subnormals among them.
Bytes any_bits(std::size_t bytes) {
  Bytes values(bytes);
  std::minstd_rand random(7);
  for (auto& value : values) value = static_cast<std::uint8_t>(random() >> 8);
  return values;
}

std::vector<float> normal_values(std::size_t count, float scale) {
  std::vector<float> values(count);
  std::minstd_rand random(3);
  std::normal_distribution<float> normal;
  for (auto& value : values) value = normal(random) * scale;
  return values;
}

TEST(DeviceDigest, IsThatOfTheCpuForEveryDType) {
  const Bytes bytes = any_bits(3 * kBlockBytes + 1000);
  std::vector<DeviceTensor> tensors;
  for (const auto dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8,
        DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool})
    tensors.push_back(
        {bytes.data(), dtype, static_cast<std::int64_t>(bytes.size() / element_size(dtype))});
  expect_as_the_cpu_sees_it(tensors);
}

TEST(DeviceDigest, IsThatOfTheCpuForEverySizeAroundABlock) {
  const auto values = normal_values(2 * kBlockBytes, 1.0F);
  std::vector<DeviceTensor> tensors;
  for (const std::int64_t numel : {0, 1, 2, 7, 8, 9, 60, 61, 2047, 2048, 2049, 4095, 4096, 4097})
    tensors.push_back({values.data(), DType::kFloat32, numel});
  expect_as_the_cpu_sees_it(tensors);
}

TEST(DeviceDigest, IsThatOfTheCpuWhereverAViewBegins) {
  const auto values = normal_values(4 * kBlockBytes, 1.0F);
  std::vector<DeviceTensor> tensors;
  for (const std::size_t first : {1, 2, 3, 5}) {
    tensors.push_back({values.data() + first, DType::kFloat32, 2500});
    tensors.push_back(
        {reinterpret_cast<const std::uint16_t*>(values.data()) + first, DType::kBFloat16, 5000});
    tensors.push_back(
        {reinterpret_cast<const std::uint8_t*>(values.data()) + first, DType::kUInt8, 9000});
  }
  expect_as_the_cpu_sees_it(tensors);
}

TEST(DeviceDigest, HasTheNormOfValuesWhoseSquaresNoFloatHolds) {
  for (const float scale : {1e-42F, 1e-30F, 1e-12F, 1e12F, 1e30F}) {
    auto values = normal_values(2048, scale);
    values[100] = std::numeric_limits<float>::infinity();
    values[2000] = std::numeric_limits<float>::quiet_NaN();
    expect_as_the_cpu_sees_it({{values.data(), DType::kFloat32, 2048}});
  }
}

TEST(DeviceDigest, HasZeroFiguresForZeros) {
  const std::vector<float> zeros(2048, -0.0F);
  expect_as_the_cpu_sees_it({{zeros.data(), DType::kFloat32, 2048}});
}

TEST(DeviceDigest, NeedsSeveralLaunchesForManyTensors) {
  const auto values = normal_values(700, 1.0F);
  std::vector<DeviceTensor> tensors;
  for (std::size_t i = 0; i < 600; ++i)
    tensors.push_back({values.data() + i, DType::kFloat32, static_cast<std::int64_t>(i % 20)});
  EXPECT_EQ(Plan(tensors, false).launches(), 2U);
  expect_as_the_cpu_sees_it(tensors);
}

}  // namespace
}  // namespace ddp_doctor::cuda
