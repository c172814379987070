// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/gate/rounding.h"

#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

using Measured = Magnitudes::Measured;

// One rank, the same gradient and weight in each step; then scaled by `factor`.
Magnitudes run(double factor, std::int64_t steps = 3) {
  const Measured fc{factor * 2.0, {factor * 1.0, factor * -1.0}};
  const Measured bias{factor * 0.5, {factor * 0.5}};
  Magnitudes::Steps seen;
  for (std::int64_t step = 1; step <= steps; ++step) {
    seen[step]["fc"] = {{fc}, {fc}};
    seen[step]["bias"] = {{bias}, {bias}};
  }
  return Magnitudes(std::move(seen));
}

// Of one gradient, in one step.
Magnitudes with(const Magnitudes& run, std::int64_t step, const std::string& name,
                const Measured& gradient) {
  auto steps = run.steps();
  steps[step][name].gradient = {gradient};
  return Magnitudes(std::move(steps));
}

TEST(Distances, AreRelativeToTheNorm) {
  const Distances seen(run(1.0), run(1.001));
  EXPECT_NEAR(seen.gradient.at(1).at("fc").norm, 1e-3, 1e-5);
  EXPECT_NEAR(seen.weight.at(3).at("bias").sample, 1e-3, 1e-5);
}

TEST(Distances, OfWhatOnlyRoundingLeftIsSmall) {
  const auto a = with(run(1.0), 1, "noise", {1e-9, {1e-9}});
  const auto b = with(run(1.0), 1, "noise", {3e-9, {-3e-9}});
  EXPECT_LT(Distances(a, b).gradient.at(1).at("noise").sample, 0.1);
}

TEST(Distances, OmitStepsParametersAndRanksThatOneLacks) {
  auto steps = run(1.0, 2).steps();
  steps[1].erase("bias");
  steps[2]["fc"].gradient = {std::nullopt};
  const Distances seen(run(1.0), Magnitudes(std::move(steps)));
  EXPECT_FALSE(seen.gradient.contains(3));
  EXPECT_FALSE(seen.gradient.at(1).contains("bias"));
  EXPECT_FALSE(seen.gradient.at(2).contains("fc"));
  EXPECT_TRUE(seen.weight.at(2).contains("fc"));
}

TEST(Rounding, ToleratesTenTimesWhatItMeasured) {
  const Distances rounding(run(1.0), run(1.0 + 1e-6));
  EXPECT_FALSE(beyond_rounding(Distances(run(1.0), run(1.0 - 9e-6)), rounding).first);
  const auto seen = beyond_rounding(Distances(run(1.0), run(1.0 + 1.2e-5)), rounding);
  ASSERT_TRUE(seen.first);
  EXPECT_EQ(seen.first->step, 1);
  EXPECT_EQ(seen.first->stage, Stage::kGradient);
  EXPECT_EQ(seen.first->parameters.size(), 2u);
  EXPECT_EQ(seen.steps, 3u);
}

TEST(Rounding, NamesTheFirstStepAndTheParameter) {
  const Distances rounding(run(1.0), run(1.0 + 1e-6));
  const auto other = with(run(1.0), 2, "bias", {0.51, {0.51}});
  const auto seen = beyond_rounding(Distances(run(1.0), other), rounding);
  ASSERT_TRUE(seen.first);
  EXPECT_EQ(seen.first->step, 2);
  EXPECT_EQ(seen.first->most, "bias");
  EXPECT_EQ(seen.first->parameters.size(), 1u);
}

TEST(Rounding, SeesAChangeThatKeepsTheNorm) {
  const Distances rounding(run(1.0), run(1.0 + 1e-6));
  const auto turned = with(run(1.0), 1, "fc", {2.0, {-1.0, 1.0}});
  EXPECT_TRUE(beyond_rounding(Distances(run(1.0), turned), rounding).first);
}

TEST(Rounding, OfMostParametersIsAFloorForEach) {
  const auto base = with(run(1.0), 1, "lucky", {1.0, {1.0}});
  const auto twin = with(run(1.0 + 1e-5), 1, "lucky", {1.0, {1.0}});
  const auto other = with(run(1.0), 1, "lucky", {1.0 + 5e-5, {1.0 + 5e-5}});
  EXPECT_FALSE(beyond_rounding(Distances(base, other), Distances(base, twin)).first);
}

TEST(Rounding, OfAStepCountsForLaterOnes) {
  const Distances rounding(run(1.0), with(run(1.0), 1, "fc", {2.002, {1.001, -1.001}}));
  const auto later = with(run(1.0), 3, "fc", {2.002, {1.001, -1.001}});
  const auto earlier = with(run(1.0), 3, "bias", {0.501, {0.501}});
  EXPECT_FALSE(beyond_rounding(Distances(run(1.0), later), rounding).first);
  EXPECT_TRUE(beyond_rounding(Distances(run(1.0), earlier), rounding).first);
}

TEST(Rounding, WithoutMeasurementToleratesNearlyNothing) {
  EXPECT_TRUE(beyond_rounding(Distances(run(1.0), run(1.0 + 1e-5)), Distances()).first);
  EXPECT_FALSE(beyond_rounding(Distances(run(1.0), run(1.0 + 1e-7)), Distances()).first);
}

}  // namespace
}  // namespace ddp_doctor
