// SPDX-License-Identifier: BSD-3-Clause
// Where one process is no reference.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/diagnose/rule.h"
#include "tests/unit/planted_gradients.h"

namespace ddp_doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ParityDoubt, BeatsAFinding) {
  struct Doubt {
    const char* says;
    std::function<void(ParityFigures&)> change;
  };
  for (const auto& [says, change] :
       std::vector<Doubt>{{"random numbers are drawn in the forward of Net",
                           [](auto& figures) { figures.random = {"in the forward of Net"}; }},
                          {"Teacher, which no optimizer holds, has other weights on each rank",
                           [](auto& figures) { figures.frozen_differ = {"Teacher"}; }},
                          {"in step 1 the ranks step with gradients of their own",
                           [](auto& figures) { figures.steps[0].apart = true; }},
                          {"the model gets other inputs in one process", [](auto& figures) {
                             figures.steps[0].module = {".0.0", "input", 0.1};
                           }}}) {
    Planted planted(2);
    for (auto& gradient : planted.ranks) gradient = times(2, gradient);
    const auto parity = judged(planted.step(), 2, change);
    EXPECT_THAT(parity.inconclusive, HasSubstr(says));
    EXPECT_THAT(parity.findings, IsEmpty());
    EXPECT_THAT(summary_of(parity, 2), HasSubstr("cannot be compared with one process: "));
    // Where nothing differs, there is nothing to doubt.
    EXPECT_EQ(judged(Planted(2).step(), 2, change).inconclusive, "");
  }
}

TEST(ParityDoubt, IsNoneIfTheLoopDrawsRandomNumbersAndIsFedThem) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  const auto parity = judged(planted.step(), 2, [](auto& figures) {
    figures.random = {"between the batch and the optimizer step"};
  });
  EXPECT_EQ(finding_of_parity(parity).rule, kParityScale.code);
}

TEST(ParityDoubt, IsPaddingThatChangesTheGradient) {
  Planted planted(2);
  planted.weigh({0.5, 0.5}, {0.4, 0.6});
  for (const auto& vectors : planted.alone) planted.padded.push_back(times(0.8, vectors[0]));
  EXPECT_THAT(judged(planted.step()).inconclusive, HasSubstr("padding them to the longest"));
  planted.padded.clear();
  for (const auto& vectors : planted.alone) planted.padded.push_back(vectors[0]);
  EXPECT_EQ(finding_of_parity(judged(planted.step())).rule, kParityWeighting.code);
}

TEST(ParityDoubt, IsAProgramThatCountsItsSteps) {
  Planted planted(2);
  planted.again = planted.one;
  EXPECT_EQ(judged(planted.step()).inconclusive, "");
  // The ranks' step and the same one of one process: equal, and all that comes later is not.
  planted.again[1] = times(1.01, planted.one[1]);
  planted.order = 1e-3;
  auto parity = judged(planted.step());
  EXPECT_EQ(parity.inconclusive, "");
  EXPECT_EQ(parity.steps.at(0).equal, 3u);
  EXPECT_THAT(parity.notes, Contains(HasSubstr("rounding alone does could not be measured")));
  for (auto& gradient : planted.ranks) gradient = times(1.002, gradient);
  parity = judged(planted.step());
  EXPECT_THAT(parity.findings, IsEmpty());
  EXPECT_THAT(parity.inconclusive, HasSubstr("in a later step"));
}

TEST(ParityDoubt, IsAnOrderThatChangesMoreThanRounding) {
  Planted planted(2);
  planted.order = 0.2;
  const auto parity = judged(planted.step());
  EXPECT_THAT(parity.inconclusive, HasSubstr("the order of the samples alone changes"));
  EXPECT_THAT(
      judged(planted.step(), 2, [](auto& figures) { figures.random = {"in the forward of Net"}; })
          .inconclusive,
      HasSubstr("random numbers are drawn in the forward of Net"));
}

// The steps that agree with the samples of the ranks do so by luck.
TEST(ParityDoubt, IsSuchAnOrderInAnyStep) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  ParityFigures figures;
  figures.steps = {planted.step(1)};
  planted.order = 0.2;
  figures.steps.push_back(planted.step(2));
  const auto parity = judge_parity(figures, 2);
  EXPECT_THAT(parity.findings, IsEmpty());
  EXPECT_THAT(parity.inconclusive, HasSubstr("in step 2 the order of the samples alone"));
  figures.low_precision = true;
  EXPECT_THAT(judge_parity(figures, 2).findings, SizeIs(1)) << "rounding may do as much";
}

TEST(ParityDoubt, IsAReferenceThatWasImpossible) {
  ParityFigures figures;
  figures.impossible = "the model gets no samples";
  const auto parity = judge_parity(figures, 2);
  EXPECT_EQ(parity.inconclusive, "the model gets no samples");
  EXPECT_THAT(parity.notes, IsEmpty());
}

TEST(ParityDoubt, IsThatNothingHasAGradient) {
  Planted planted(2);
  for (auto* gradients : {&planted.ranks, &planted.one})
    for (auto& gradient : *gradients) gradient = Vector(30, 0.0);
  EXPECT_EQ(judged(planted.step()).inconclusive,
            "no parameter has a gradient that could be compared");
  EXPECT_EQ(judged(Planted(2, 0).step()).inconclusive,
            "no parameter has a gradient that could be compared");
}

}  // namespace
}  // namespace ddp_doctor
