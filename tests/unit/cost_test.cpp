// SPDX-License-Identifier: BSD-3-Clause
// What a step costs relative to another run, put to made-up times of which the truth is known.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "lib/report/compare/comparison.h"

namespace ddp_doctor {
namespace {

using testing::HasSubstr;

using Times = std::vector<std::optional<double>>;

RunReport with(Times again_ms) {
  RunReport run;
  run.step_time = StepTime{10.0, 9.0, 11.0, 6};
  run.again_ms = std::move(again_ms);
  return run;
}

Cost cost(Times base, Times other) {
  return cost_between(with(std::move(other)), with(std::move(base))).value();
}

// A machine that other work slows down.
class Machine {
 public:
  explicit Machine(std::uint32_t seed) : random_(seed) {}

  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }

  // A run of a program whose steps would take `ms`. Noise of about 3 % always, and one run in ten
  // meets a burst that slows it down by up to two; then time goes on.
  double run(double ms) {
    const double noise = std::exp(0.03 * (uniform() + uniform() + uniform() + uniform() - 2.0) *
                                  1.7320508);  // the sum has a variance of 1/3
    const double burst = uniform() < 0.1 ? 1.0 + uniform() : 1.0;
    const double speed = 1.0 + 0.8 * std::sin(drift_ * now_);
    now_ += 1.0;
    return ms * noise * burst * (drift_ == 0.0 ? 1.0 : speed);
  }

  // From now on its speed goes up and down by a factor of nine, once in `runs`.
  void drifts(double runs) { drift_ = 2.0 * 3.14159265 / runs; }

  // Repeats as `compare` takes them: A B, B A, A B, ...
  Cost compare(double base_ms, double other_ms, int rounds) {
    Times base, other;
    for (int round = 0; round < rounds; ++round) {
      if (round % 2 == 0) base.emplace_back(run(base_ms));
      other.emplace_back(run(other_ms));
      if (round % 2 != 0) base.emplace_back(run(base_ms));
    }
    return cost(std::move(base), std::move(other));
  }

 private:
  std::mt19937 random_;
  double drift_ = 0.0;
  double now_ = 0.0;
};

struct Share {
  double measurable = 0.0;
  double holds_truth = 0.0;
};

constexpr int kTrials = 4000;

Share of_trials(Machine& machine, double truth, int rounds) {
  Share share;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Cost found = machine.compare(10.0, 10.0 * truth, rounds);
    share.measurable += found.measurable() ? 1.0 / kTrials : 0.0;
    share.holds_truth += found.low <= truth && truth <= found.high ? 1.0 / kTrials : 0.0;
  }
  return share;
}

TEST(Cost, IsTheMedianOfPairs) {
  const Cost dearer =
      cost({10.0, 20.0, 10.0, 10.0, 10.0, 10.0}, {11.0, 24.0, 13.0, 11.5, 12.5, 12.0});
  EXPECT_DOUBLE_EQ(dearer.ratio, 1.2);
  EXPECT_DOUBLE_EQ(dearer.low, 1.1);
  EXPECT_DOUBLE_EQ(dearer.high, 1.3);
  EXPECT_EQ(dearer.pairs, 6u);
  EXPECT_TRUE(dearer.measurable());
  EXPECT_EQ(describe(dearer, "as-is"),
            "1.20 times the step time of as-is (1.10 to 1.30 in 6 pairs of runs)");
}

TEST(Cost, IsNotMeasurableWhereTheIntervalHoldsOne) {
  const Cost noise =
      cost({10.0, 10.0, 10.0, 10.0, 10.0, 10.0}, {11.0, 9.5, 10.2, 10.5, 10.6, 10.7});
  EXPECT_FALSE(noise.measurable());
  EXPECT_THAT(describe(noise, "as-is"), HasSubstr("no measurable difference"));
}

// A repeat that did not come to its end takes its pair with it.
TEST(Cost, OfFivePairsIsTooFew) {
  const Cost few = cost({10.0, {}, 10.0, 10.0, 10.0, 10.0}, {12.0, 12.0, 12.0, 12.0, 12.0, 12.0});
  EXPECT_EQ(few.pairs, 5u);
  EXPECT_FALSE(few.measurable());
  EXPECT_THAT(describe(few, "as-is"), HasSubstr("in 5 pairs of runs: too few"));
}

TEST(Cost, LeavesOutWhatTheSignTestLets) {
  const auto interval = [](std::size_t pairs) {
    Times base(pairs, 1.0), other;
    for (std::size_t i = 0; i < pairs; ++i) other.emplace_back(static_cast<double>(i + 1));
    const Cost found = cost(base, other);
    return std::pair(found.low, found.high);
  };
  EXPECT_EQ(interval(1), std::pair(1.0, 1.0));
  EXPECT_EQ(interval(8), std::pair(1.0, 8.0));
  EXPECT_EQ(interval(9), std::pair(2.0, 8.0));
  EXPECT_EQ(interval(12), std::pair(3.0, 10.0));
  EXPECT_EQ(interval(20), std::pair(6.0, 15.0));
  EXPECT_EQ(interval(1000), std::pair(469.0, 532.0));
}

// The same program twice.
TEST(Cost, OfNothingIsCalledMeasurableInAtMostFiveOfAHundred) {
  for (const int rounds : {6, 7, 9, 12, 20}) {
    Machine machine(1);
    const Share share = of_trials(machine, 1.0, rounds);
    EXPECT_LE(share.measurable, 0.05) << rounds << " rounds";
    EXPECT_GE(share.holds_truth, 0.95) << rounds << " rounds";
  }
}

TEST(Cost, OfTenPercentIsFound) {
  for (const int rounds : {6, 12, 20}) {
    Machine machine(2);
    const Share share = of_trials(machine, 1.1, rounds);
    EXPECT_GE(share.measurable, rounds == 6 ? 0.45 : 0.85) << rounds << " rounds";
    EXPECT_GE(share.holds_truth, 0.95) << rounds << " rounds";
  }
}

// The speed of the machine changes by much more than what is looked for.
TEST(Cost, IsNotMovedByDriftThatPairsShare) {
  for (const double runs : {200.0, 1000.0}) {
    Machine machine(3);
    machine.drifts(runs);
    EXPECT_LE(of_trials(machine, 1.0, 6).measurable, 0.05) << runs;
    EXPECT_GE(of_trials(machine, 1.1, 12).holds_truth, 0.94) << runs;
    EXPECT_GE(of_trials(machine, 1.1, 20).measurable, 0.7) << runs;
  }
}

}  // namespace
}  // namespace ddp_doctor
