// SPDX-License-Identifier: BSD-3-Clause
// The ranks against one process: what is within rounding, and what is not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/diagnose/rule.h"
#include "tests/unit/planted_gradients.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Parity, IsQuietWithinRounding) {
  for (const std::size_t ranks : {2, 3, 8}) {
    const auto parity = judged(Planted(ranks).step(), static_cast<int>(ranks));
    EXPECT_THAT(parity.findings, IsEmpty());
    EXPECT_EQ(parity.inconclusive, "");
    ASSERT_THAT(parity.steps, SizeIs(1));
    EXPECT_EQ(parity.steps[0].parameters, 3u);
    EXPECT_EQ(parity.steps[0].equal, 3u);
    EXPECT_LT(parity.steps[0].distance, 1e-6);
    EXPECT_THAT(parity.notes, ElementsAre(HasSubstr("dropout")));
    EXPECT_THAT(summary_of(parity, static_cast<int>(ranks)),
                HasSubstr(" ranks are those of one process: 3 of 3 parameters within rounding"));
  }
}

TEST(Parity, FindsGradientsWhereOneProcessHasNone) {
  Planted planted(2);
  for (auto& gradient : planted.one) gradient = Vector(30, 0.0);
  auto step = planted.step();
  step.loss = 0;
  const auto parity = judged(step);
  EXPECT_EQ(finding_of_parity(parity).rule, kParityForward.code);
  EXPECT_TRUE(std::isinf(parity.steps[0].distance));
}

TEST(Parity, TakesAGradientThatIsZeroButForRoundingForEqual) {
  Planted planted(2);
  // As of a bias before BatchNorm.
  planted.ranks[1] = times(1e-8, planted.random());
  planted.one[1] = times(1e-8, planted.random());
  EXPECT_THAT(judged(planted.step()).findings, IsEmpty());
}

// The smallest error that is found in one of three parameters, whose rounding is 1e-7 of it.
TEST(Parity, FindsAnErrorOf1In10000InOneParameter) {
  const auto with = [](double factor, bool low_precision) {
    Planted planted(2);
    planted.ranks[1] = times(factor, planted.ranks[1]);
    return judged(planted.step(), 2, [&](auto& figures) { figures.low_precision = low_precision; });
  };
  EXPECT_THAT(with(1 + 5e-6, false).findings, IsEmpty());
  for (const double error : {2e-5, 1e-4, 1e-2})
    EXPECT_EQ(finding_of_parity(with(1 + error, false)).rule, kParityParameters.code) << error;
  EXPECT_THAT(with(1.01, true).findings, IsEmpty());
  EXPECT_EQ(finding_of_parity(with(1.05, true)).rule, kParityParameters.code);
}

TEST(Parity, AllowsMoreWhereTheOrderDoesMore) {
  Planted planted(2);
  planted.order = 1e-4;
  planted.ranks[1] = times(1.001, planted.ranks[1]);
  EXPECT_THAT(judged(planted.step()).findings, IsEmpty());
  planted.ranks[1] = times(1.01, planted.ranks[1]);
  EXPECT_EQ(finding_of_parity(judged(planted.step())).rule, kParityParameters.code);
}

TEST(Parity, ReportsTheFirstStepThatDiffersAndComparesAll) {
  ParityFigures figures;
  figures.steps.push_back(Planted(2).step(1));
  Planted twice(2);
  for (auto& gradient : twice.ranks) gradient = times(2, gradient);
  figures.steps.push_back(twice.step(2));
  Planted half(2);
  half.ranks[0] = times(0.5, half.ranks[0]);
  figures.steps.push_back(half.step(7));
  for (auto& step : figures.steps) step.not_told = {"experts.weight"};
  const auto parity = judge_parity(figures, 2);
  const auto finding = finding_of_parity(parity);
  EXPECT_EQ(finding.rule, kParityScale.code);
  EXPECT_EQ(finding.first_step, 2);
  ASSERT_THAT(parity.steps, SizeIs(3));
  EXPECT_EQ(parity.steps[1].equal, 0u);
  EXPECT_EQ(parity.steps[2].equal, 2u);
  EXPECT_THAT(parity.notes, ElementsAre(HasSubstr("dropout"), HasSubstr("experts.weight")));
  EXPECT_THAT(summary_of(parity, 2),
              HasSubstr("are not those of one process, and the finding is ignored: 0 of 3 "));
}

TEST(Parity, CountsOptimizersThatStepInTurnByThemselves) {
  ParityFigures figures;
  figures.steps.push_back(Planted(2, 6).step(1));
  figures.steps.push_back(Planted(2, 4).step(2));
  EXPECT_THAT(summary_of(judge_parity(figures, 2), 2), HasSubstr(": 6 of 6 parameters"));
  Planted twice(2, 4);
  twice.ranks[0] = times(2, twice.ranks[0]);
  figures.steps.push_back(twice.step(4));
  EXPECT_THAT(summary_of(judge_parity(figures, 2), 2), HasSubstr(": 3 of 4 parameters"));
}

}  // namespace
}  // namespace ddp_doctor
