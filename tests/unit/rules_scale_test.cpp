// SPDX-License-Identifier: BSD-3-Clause
// The rules about gradients that come out as a multiple of their mean (DDP107, DDP108), or lack a
// part (DDP116).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/synchronized_runs.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<double> ramp(double factor) {
  std::vector<double> values;
  for (int i = 1; i <= 8; ++i) values.push_back(factor * i);
  return values;
}

// ---- DDP107

// Local gradients of `ranks` whose mean is ramp(1.5), and what comes out of the reducer.
RunBuilder reduced(double k) {
  auto run = healthy();
  for (int rank : {0, 1}) {
    run.sample(rank, 0, Stage::kLocalGradient, ramp(1.0 + rank));
    run.sample(rank, 0, Stage::kReducedGradient, ramp(1.5 * k));
  }
  return run;
}

// The same by hand: what the optimizer gets.
RunBuilder summed_by_hand(double k) {
  auto run = by_hand();
  run.call(all_reduce("gradient of body.weight")).call(all_reduce("gradient of head.weight"));
  for (int rank : {0, 1}) {
    run.sample(rank, 0, Stage::kLocalGradient, ramp(1.0 + rank));
    run.sample(rank, 0, Stage::kGradient, ramp(1.5 * k));
  }
  return run;
}

TEST(GradientScale, IsTheWorldSizeWhereACommunicationHookForgetsToDivide) {
  const auto findings = diagnose(reduced(2.0).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP107"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(findings[0].parameters, IsEmpty());
  EXPECT_DOUBLE_EQ(findings[0].evidence["factor"], 2.0);
  EXPECT_EQ(findings[0].evidence["steps_checked"], 3);
  EXPECT_THAT(findings[0].message, HasSubstr("2 times the mean"));
  EXPECT_EQ(findings[0].prescription.strategy, "ddp");
}

TEST(GradientScale, PointsAtAHandWrittenSumOrASecondDivision) {
  for (double k : {2.0, 0.5, 4.0}) {
    const auto finding = found("DDP107", summed_by_hand(k));
    ASSERT_TRUE(finding) << k;
    EXPECT_DOUBLE_EQ(finding->evidence["factor"], k);
    EXPECT_EQ(finding->evidence["hand_written"], true);
    ASSERT_TRUE(finding->where);
    EXPECT_EQ(finding->where->line, 31);
    EXPECT_EQ(finding->prescription.strategy, "");  // none takes the program's own collectives away
  }
}

TEST(GradientScale, IsTheSizeOfAGroupWhereOnlyThatWasDividedBy) {
  for (double k : {2.0, 0.5}) {
    auto run = by_hand(4);
    for (const char* group : {"0,1", "0,2"}) {
      auto call = all_reduce("", 16);
      call.group = group;
      run.call(call);
    }
    for (int rank = 0; rank < 4; ++rank) {
      run.sample(rank, 0, Stage::kLocalGradient, ramp(1.0 + rank));
      run.sample(rank, 0, Stage::kGradient, ramp(2.5 * k));
    }
    const auto finding = found("DDP107", run);
    ASSERT_TRUE(finding) << k;
    EXPECT_DOUBLE_EQ(finding->evidence["factor"], k);
  }
}

TEST(GradientScale, StaysQuietForTheMean) {
  EXPECT_THAT(diagnosed(reduced(1.0)), IsEmpty());
  EXPECT_THAT(diagnosed(reduced(1.002)), IsEmpty()) << "compression to half precision";
  EXPECT_THAT(diagnosed(summed_by_hand(1.0)), IsEmpty());
}

TEST(GradientScale, StaysQuietForClippingAfterAHandWrittenSync) {
  EXPECT_THAT(diagnosed(summed_by_hand(0.37)), IsEmpty());
  auto often = summed_by_hand(1.0);
  for (int rank : {0, 1}) often.sample(rank, 0, Stage::kGradient, ramp(1.5 * 0.5), 2);
  EXPECT_THAT(diagnosed(often), IsEmpty()) << "a step that was not clipped";
}

TEST(GradientScale, StaysQuietForALossDividedByTheWorldSizeBeforeASum) {
  for (const auto& run : {summed_by_hand(2.0), reduced(2.0)}) {
    auto divided = run;
    for (int rank : {0, 1}) divided.fact(rank, 1, "loss", "factor", "0.5");
    EXPECT_THAT(diagnosed(divided), IsEmpty());
  }
}

TEST(GradientScale, SeesASumBesideTheDivisionByMicroBatches) {
  for (const char* factor : {"0.25", "0.125"}) {
    auto run = summed_by_hand(2.0);
    run.each_step([](int, StepRecord& record) { record.backwards = 4; });
    for (int rank : {0, 1}) run.fact(rank, 1, "loss", "factor", factor);
    EXPECT_EQ(found("DDP107", run).has_value(), std::string(factor) == "0.25") << factor;
  }
}

TEST(GradientScale, StaysQuietForSumsOfTheSamples) {
  auto run = summed_by_hand(2.0);
  for (int rank : {0, 1})
    run.fact(rank, 1, "loss", "factor", "1.0").fact(rank, 1, "loss", "sum", "true");
  EXPECT_THAT(diagnosed(run), IsEmpty());
  auto divided_too_often = summed_by_hand(0.5);
  for (int rank : {0, 1})
    divided_too_often.fact(rank, 1, "loss", "factor", "1.0").fact(rank, 1, "loss", "sum", "true");
  EXPECT_TRUE(found("DDP107", divided_too_often));
}

TEST(GradientScale, StaysQuietWhereTheDivisorIsOnAnotherDevice) {
  auto run = summed_by_hand(2.0);
  for (int rank : {0, 1}) run.fact(rank, 1, "loss", "factor", "null");
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(GradientScale, SeesASumThatIsClippedInSomeSteps) {
  auto run = summed_by_hand(2.0);
  for (int rank : {0, 1}) run.sample(rank, 0, Stage::kGradient, ramp(1.5 * 1.3), 2, 2);
  const auto finding = found("DDP107", run);
  ASSERT_TRUE(finding);
  EXPECT_DOUBLE_EQ(finding->evidence["factor"], 2.0);
  EXPECT_THAT(finding->message, HasSubstr("smaller in the others"));
}

// Once an alarm: 37 tokens are no multiple of two ranks.
TEST(GradientScale, StaysQuietForALossDividedByTheTokensOfAllRanks) {
  auto run = summed_by_hand(2.0);
  for (int rank : {0, 1}) {
    run.fact(rank, 1, "loss", "factor", "0.027027027");
    run.fact(rank, 2, "loss", "factor", "0.024390244");
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(GradientScale, StaysQuietForALossWeightedWithTheShareOfEachRank) {
  auto run = summed_by_hand(2.0);
  run.fact(0, 1, "loss", "factor", "0.625").fact(1, 1, "loss", "factor", "0.375");
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// Once an alarm: two micro-batches on two ranks look like a second division by the world size.
TEST(GradientScale, StaysQuietForASumOverMicroBatchesThatIsDividedByTheirNumber) {
  auto run = summed_by_hand(0.5);
  run.trace("Bu*2 Cg*2", 2);
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// Once an alarm: it was compared with the gradients before the first collective.
TEST(GradientScale, StaysQuietForGradientsDividedBeforeTheyAreSummed) {
  auto run = summed_by_hand(1.0);
  for (int rank : {0, 1}) run.sample(rank, 0, Stage::kCollectiveGradient, ramp(0.5 * (1.0 + rank)));
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// Once an alarm for a clip coefficient that happens to be 1 / world size, and a log of the loss.
TEST(GradientScale, StaysQuietWhereTheCollectiveIsForTheLossOnly) {
  auto run = reduced(1.0);
  run.call(all_reduce("")).trace("F0+ B0+ C", 1);
  for (int rank : {0, 1}) {
    run.sample(rank, 0, Stage::kCollectiveGradient, ramp(1.5));
    run.sample(rank, 0, Stage::kGradient, ramp(0.75));
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(GradientScale, StaysQuietWhereTooLittleCanTell) {
  auto few = healthy();
  auto cancelled = healthy();
  for (int rank : {0, 1}) {
    few.sample(rank, 0, Stage::kLocalGradient, {1.0, 2.0});
    few.sample(rank, 0, Stage::kReducedGradient, {2.0, 4.0});
    cancelled.sample(rank, 0, Stage::kLocalGradient, ramp(rank == 0 ? 1.0 : -0.99));
    cancelled.sample(rank, 0, Stage::kReducedGradient, ramp(0.01));
  }
  EXPECT_THAT(diagnosed(few), IsEmpty());
  EXPECT_THAT(diagnosed(cancelled), IsEmpty());
}

// ---- DDP108

// Gradients as the backward left them, and as they went into the collective.
RunBuilder scaled(double factor0, double factor1) {
  auto run = by_hand();
  run.call(all_reduce("", 2));
  const double factors[] = {factor0, factor1};
  for (int rank : {0, 1}) {
    auto local = ramp(1.0);
    local[0] = rank == 0 ? 5.0 : -3.0;
    auto changed = local;
    for (auto& value : changed) value *= factors[rank];
    run.sample(rank, 0, Stage::kLocalGradient, local);
    run.sample(rank, 0, Stage::kCollectiveGradient, changed);
  }
  return run;
}

TEST(ClipBeforeSync, ShowsTheFactorOfEachRank) {
  const auto findings = diagnose(scaled(0.5, 0.25).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP108"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_EQ(findings[0].evidence["factor_by_rank"], (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(findings[0].evidence["steps_affected"], 3);
  ASSERT_TRUE(findings[0].where);
  EXPECT_EQ(findings[0].where->file, "train.py");
}

// Once an alarm beside DDP101: clipped, and then a barrier.
TEST(ClipBeforeSync, StaysQuietWhereNothingSynchronizesAfterwards) {
  auto run = scaled(0.5, 0.25);
  for (int rank : {0, 1}) {
    auto clipped = ramp(rank == 0 ? 0.5 : 0.25);
    clipped[0] = rank == 0 ? 2.5 : -0.75;
    run.sample(rank, 0, Stage::kGradient, clipped);
  }
  EXPECT_FALSE(found("DDP108", run));
}

TEST(ClipBeforeSync, IsSeenWhereEveryMicroBatchRanUnderNoSync) {
  auto run = by_hand();
  run.call(all_reduce("", 2));
  for (int rank : {0, 1}) {
    run.sample(rank, 0, Stage::kAccumulated, ramp(1.0));
    run.sample(rank, 0, Stage::kCollectiveGradient, ramp(rank == 0 ? 0.5 : 0.25));
  }
  EXPECT_TRUE(found("DDP108", run));
}

TEST(ClipBeforeSync, IsLikelyBeforeAnOptimizerThatReducesByItself) {
  const auto with = [](double factor0, double factor1, const char* moment) {
    auto run = by_hand();
    auto call = all_reduce("", 2);
    call.moment = moment;
    run.call(call);
    for (int rank : {0, 1}) {
      // The local norms are 1 and 2: clipped to 0.5, factors of 0.5 and 0.25.
      for (auto& seen : run.step(rank, 1).observations) {
        if (seen.stage == Stage::kLocalGradient)
          seen.digest.l2_norm = seen.tensor == 0 ? rank + 1.0 : 0.0;
      }
      run.sample(rank, 0, Stage::kLocalGradient, ramp(1.0));
      run.sample(rank, 0, Stage::kGradient, ramp(rank == 0 ? factor0 : factor1));
    }
    return run;
  };
  const auto finding = found("DDP108", with(0.5, 0.25, "optimizer"));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_FALSE(found("DDP108", with(0.5, 0.4, "optimizer")));  // no one norm: weights of a mean
  EXPECT_FALSE(found("DDP108", with(0.5, 0.25, "outside")));   // nothing reduces them
}

TEST(ClipBeforeSync, StaysQuietForTheSameFactorOnEveryRank) {
  EXPECT_THAT(diagnosed(scaled(1.0, 1.0)), IsEmpty());
  EXPECT_THAT(diagnosed(scaled(0.5, 0.5)), IsEmpty()) << "divided by the world size";
  EXPECT_THAT(diagnosed(scaled(1.0 / 1024, 1.0 / 1024)), IsEmpty()) << "unscaled alike";
}

// Two parameters, of which each rank scaled the second one too.
RunBuilder scaled_one_by_one(double factor0, double factor1) {
  auto run = scaled(0.5, 0.25);
  for (int rank : {0, 1}) {
    run.sample(rank, 1, Stage::kLocalGradient, ramp(1.0));
    run.sample(rank, 1, Stage::kCollectiveGradient, ramp(rank == 0 ? factor0 : factor1));
  }
  return run;
}

TEST(ClipBeforeSync, IsLikelyWhereEachParameterIsClippedByItself) {
  const auto findings = diagnose(scaled_one_by_one(0.8, 0.9).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP108"));
  EXPECT_EQ(findings[0].certainty, Certainty::kLikely);
}

TEST(ClipBeforeSync, StaysQuietForCompressionAndNoise) {
  EXPECT_FALSE(found("DDP108", scaled_one_by_one(0.8, 0.0))) << "dropped";
  EXPECT_FALSE(found("DDP108", scaled_one_by_one(0.8, 1.1))) << "made larger";
}

// Once an alarm: each rank's share of the tokens is a local factor too.
TEST(ClipBeforeSync, StaysQuietForAWeightedMean) {
  EXPECT_THAT(diagnosed(scaled(0.625, 0.375)), IsEmpty()) << "shares that are summed";
  EXPECT_THAT(diagnosed(scaled(1.25, 0.75)), IsEmpty()) << "shares that are averaged";
  auto counts = scaled(5.0, 3.0);
  auto mean = ramp(1.0);
  mean[0] = (5.0 * 5.0 - 3.0 * 3.0) / 8.0;
  for (int rank : {0, 1}) counts.sample(rank, 0, Stage::kGradient, mean);
  EXPECT_THAT(diagnosed(counts), IsEmpty()) << "token counts, the sum divided by all tokens";
  for (int rank : {0, 1}) counts.sample(rank, 0, Stage::kGradient, ramp(2.9));
  EXPECT_THAT(diagnosed(counts), ElementsAre("DDP108"));
}

// A former false positive: with proportional gradients the reducer's mean is a different factor on
// each rank.
TEST(ClipBeforeSync, StaysQuietWhereAReducerCameInBetween) {
  auto run = reduced(1.0);
  run.call(all_reduce("")).trace("F0+ B0+ C", 1);
  for (int rank : {0, 1}) run.sample(rank, 0, Stage::kCollectiveGradient, ramp(1.5));
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// ---- DDP116

// Each step gathers activations; rank r's loss is 1 + r * `apart`.
RunBuilder gathering(double apart, const std::string& in_backward = "") {
  RunBuilder run(2, {"encoder.weight"}, 4);
  for (int rank = 0; rank < 2; ++rank) {
    run.record(rank).sites.push_back({"gather", 1, "clip.py", 30, {}});
    run.record(rank).facts.push_back({1, "gather", "gradient", "\"function\""});
  }
  return run.each_step([=](int rank, StepRecord& step) {
    step.loss = 1.0 + rank * apart;
    Collective gather;
    gather.op = "all_gather";
    gather.moment = "forward";
    gather.numel = 64;
    gather.file = "clip.py";
    gather.line = 30;
    step.calls = {gather};
    if (in_backward.empty()) return;
    gather.op = in_backward;
    gather.moment = "backward";
    step.calls.push_back(gather);
  });
}

TEST(GatherWithoutGradient, IsLikelyWhereEachRankHasALossOfItsOwn) {
  const auto finding = found("DDP116", gathering(0.5));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_EQ(finding->where->line, 30);
  EXPECT_EQ(finding->evidence["how"], "function");
  EXPECT_THAT(finding->message, HasSubstr("the backward of the function"));
}

TEST(GatherWithoutGradient, StaysQuietWhereTheBackwardSumsGradients) {
  EXPECT_FALSE(found("DDP116", gathering(0.5, "all_reduce")));
}

TEST(GatherWithoutGradient, StaysQuietWhereAllRanksComputeTheSameLoss) {
  EXPECT_FALSE(found("DDP116", gathering(0.0)));
}

}  // namespace
}  // namespace ddp_doctor
