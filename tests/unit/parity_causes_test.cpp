// SPDX-License-Identifier: BSD-3-Clause
// What a difference is taken for: DDP701 to DDP704.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/diagnose/rule.h"
#include "tests/unit/planted_gradients.h"

namespace ddp_doctor {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

struct Factor {
  int world_size;
  double k;
  const char* says;
  const char* does;
};

TEST(ParityScale, SaysWhatAFactorOfItsSizeMostlyIs) {
  for (const auto& [world_size, k, says, does] :
       {Factor{2, 2, "multiplied by the world size", "remove the factor 2"},
        Factor{4, 4, "multiplied by the world size", "remove the factor 4"},
        Factor{4, 0.25, "a loss that is a sum over the samples", "mean over the samples"},
        Factor{4, 2, "the accumulation differs", "factor 2 in the loss"},
        Factor{2, 1.01, "the accumulation differs", "factor 1.01"},
        Factor{2, -1, "the accumulation differs", "factor -1"}}) {
    Planted planted(static_cast<std::size_t>(world_size));
    for (auto& gradient : planted.ranks) gradient = times(k, gradient);
    const auto finding = finding_of_parity(judged(planted.step(3), world_size));
    EXPECT_EQ(finding.rule, kParityScale.code) << k;
    EXPECT_NEAR(finding.evidence.at("k").get<double>(), k, 1e-5);
    EXPECT_THAT(finding.message, HasSubstr(says));
    EXPECT_THAT(finding.message, HasSubstr("of all 3 parameters"));
    EXPECT_THAT(finding.prescription.text, HasSubstr(does));
    EXPECT_EQ(finding.first_step, 3);
    EXPECT_THAT(finding.ranks, SizeIs(static_cast<std::size_t>(world_size)));
    EXPECT_EQ(finding.certainty, Certainty::kCertain);
  }
}

TEST(ParityScale, IsNotReportedIfOneParameterIsRight) {
  Planted planted(2);
  for (std::size_t p : {0, 1}) planted.ranks[p] = times(2, planted.ranks[p]);
  EXPECT_EQ(finding_of_parity(judged(planted.step())).rule, kParityParameters.code);
}

TEST(ParityScale, DoesNotMindAParameterWhoseGradientIsZero) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  planted.ranks[1] = planted.one[1] = Vector(30, 0.0);
  const auto finding = finding_of_parity(judged(planted.step()));
  EXPECT_EQ(finding.rule, kParityScale.code);
  EXPECT_EQ(finding.evidence.at("equal"), 1);
}

TEST(ParityWeighting, SolvesForTheWeightsOfTheRanks) {
  Planted planted(2);
  planted.weigh({0.5, 0.5}, {0.25, 0.75});
  auto step = planted.step();
  step.counts = {{"samples", {8, 8}},
                 {"input_ids that are not 0", {99, 301}},
                 {"labels that are not -100", {100, 300}},
                 {"labels but the first that are not -100", {99.93, 300}}};
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityWeighting.code);
  EXPECT_THAT(finding.evidence.at("weights").get<Vector>(), Each(DoubleNear(0.5, 1e-5)));
  EXPECT_THAT(finding.evidence.at("one_process").get<Vector>(),
              ElementsAre(DoubleNear(0.25, 1e-5), DoubleNear(0.75, 1e-5)));
  EXPECT_THAT(finding.message, HasSubstr("weighs the gradients of the ranks 0.5000, 0.5000; one "
                                         "process on the same samples weighs them 0.2500, "
                                         "0.7500, in proportion to the number of elements of "));
  EXPECT_THAT(finding.prescription.text, HasSubstr("tokens, all_reduce their count, then"));
}

TEST(ParityWeighting, NamesTheCountThatFitsBest) {
  Planted planted(2);
  planted.weigh({0.5, 0.5}, {0.25, 0.75});
  auto step = planted.step();
  // The first by name is off by 8e-4: within the tolerance of low precision only.
  step.counts = {{"labels but the first that are not -100", {100, 299}},
                 {"labels that are not -100", {100, 300}}};
  const auto low_precision = [](ParityFigures& figures) { figures.low_precision = true; };
  EXPECT_EQ(finding_of_parity(judged(step, 2, low_precision)).evidence.at("proportional_to"),
            "labels that are not -100");
  step.counts.erase("labels that are not -100");
  EXPECT_TRUE(
      finding_of_parity(judged(step, 2, low_precision)).evidence.contains("proportional_to"));
  EXPECT_FALSE(finding_of_parity(judged(step)).evidence.contains("proportional_to"));
}

TEST(ParityWeighting, PrefersSamplesAndSaysNothingOfWhatDoesNotFit) {
  Planted planted(2);
  planted.weigh({0.5, 0.5}, {0.25, 0.75});
  auto step = planted.step();
  step.counts = {{"labels that are not -100", {20, 60}}, {"samples", {2, 6}}};
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.evidence.at("proportional_to"), "samples");
  EXPECT_THAT(finding.message, HasSubstr("the number of samples (2, 6)"));
  EXPECT_THAT(finding.prescription.text, HasSubstr("own samples"));
  step.counts = {{"samples", {4, 4}}};
  const auto other = finding_of_parity(judged(step));
  EXPECT_FALSE(other.evidence.contains("proportional_to"));
  EXPECT_THAT(other.message, Not(HasSubstr("proportion")));
  EXPECT_THAT(other.prescription.text, HasSubstr("a sum of weights"));
}

TEST(ParityWeighting, TellsMicroBatchesApartWhereTheRanksWeighTheSame) {
  Planted planted(4);
  planted.of = {0, 0, 1, 1};
  planted.weigh({0.25, 0.25, 0.25, 0.25}, {0.4, 0.1, 0.3, 0.2});
  auto step = planted.step();
  step.counts = {{"samples", {8, 8, 8, 8}}, {"labels that are not -100", {40, 10, 30, 20}}};
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityWeighting.code);
  EXPECT_EQ(finding.evidence.at("ranks"), nlohmann::json({0, 0, 1, 1}));
  EXPECT_THAT(finding.message, HasSubstr("the gradients of the micro-batches, rank by rank,"));
  EXPECT_THAT(finding.message, HasSubstr("0.4000, 0.1000, 0.3000, 0.2000, in proportion to"));
  EXPECT_THAT(finding.prescription.text,
              HasSubstr("the count of all ranks and micro-batches of the step"));
}

TEST(ParityWeighting, AddsUpTheMicroBatchesOfARank) {
  Planted planted(4);
  planted.of = {0, 0, 1, 1};
  planted.weigh({0.25, 0.25, 0.25, 0.25}, {0.1, 0.2, 0.3, 0.4});
  const auto finding = finding_of_parity(judged(planted.step()));
  EXPECT_THAT(finding.message, HasSubstr("the gradients of the ranks"));
  EXPECT_THAT(finding.message, HasSubstr("weighs them 0.3000, 0.7000"));
}

TEST(ParityWeighting, FindsProportionsWithinEachMicroBatch) {
  Planted planted(4);
  planted.of = {0, 0, 1, 1};
  // Half of the step for each micro-batch, and within it by tokens: 10 to 30, and 60 to 40.
  planted.weigh({0.25, 0.25, 0.25, 0.25}, {0.125, 0.3, 0.375, 0.2});
  auto step = planted.step();
  step.counts = {{"labels that are not -100", {10, 60, 30, 40}}};
  EXPECT_EQ(finding_of_parity(judged(step)).evidence.at("proportional_to"),
            "labels that are not -100");
}

TEST(ParityWeighting, HoldsWhereOneRanksSamplesGiveNoGradient) {
  Planted planted(3);
  for (auto& vectors : planted.alone) vectors[1] = Vector(30, 0.0);
  planted.weigh({1.0 / 3, 0, 1.0 / 3}, {0.6, 0, 0.4});
  auto step = planted.step();
  step.counts = {{"labels that are not -100", {60, 0, 40}}};
  const auto finding = finding_of_parity(judged(step, 3));
  EXPECT_EQ(finding.rule, kParityWeighting.code);
  EXPECT_EQ(finding.evidence.at("proportional_to"), "labels that are not -100");
}

TEST(ParityParameters, NamesThoseThatDiffer) {
  Planted planted(2);
  planted.ranks[1] = times(0.5, planted.ranks[1]);
  const auto finding = finding_of_parity(judged(planted.step()));
  EXPECT_EQ(finding.rule, kParityParameters.code);
  ASSERT_THAT(finding.parameters, SizeIs(1));
  EXPECT_EQ(finding.parameters[0].name, "layer1");
  EXPECT_THAT(finding.message, HasSubstr("of 1 of 3 parameters are not those"));
  EXPECT_THAT(finding.message, HasSubstr("layer1 0.5000. The other 2 are right."));
  const auto& row = finding.evidence.at("factors").at(0);
  EXPECT_NEAR(row.at("k").get<double>(), 0.5, 1e-6);
  EXPECT_NEAR(row.at("cosine").get<double>(), 1, 1e-6);
}

TEST(ParityParameters, HasAFactorForEach) {
  Planted planted(2, 9);
  for (std::size_t p = 0; p < 9; ++p)
    planted.ranks[p] = times(2 + static_cast<double>(p), planted.ranks[p]);
  const auto finding = finding_of_parity(judged(planted.step()));
  EXPECT_EQ(finding.rule, kParityParameters.code);
  EXPECT_THAT(finding.message, HasSubstr("layer0 2.0000; layer1 3.0000"));
  EXPECT_THAT(finding.message, HasSubstr("and 3 more. No parameter has the right gradient."));
  EXPECT_THAT(finding.evidence.at("factors"), SizeIs(9));
}

TEST(ParityParameters, MayBeExpertsThatAreNotDivided) {
  Planted planted(2);
  for (std::size_t p : {0, 1}) planted.ranks[p] = times(2, planted.ranks[p]);
  auto step = planted.step();
  EXPECT_THAT(finding_of_parity(judged(step)).prescription.text,
              HasSubstr("look for what reaches"));
  step.parameters[0].rank = 0;
  EXPECT_THAT(finding_of_parity(judged(step)).prescription.text,
              HasSubstr("look for what reaches"));
  step.parameters[1].rank = 1;
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityParameters.code);
  EXPECT_THAT(finding.prescription.text,
              HasSubstr("divide these gradients by the number of ranks"));
}

TEST(ParityParameters, HasOneWithoutAGradientInOneProcess) {
  Planted planted(2);
  planted.one[2] = planted.alone[2][0] = planted.alone[2][1] = Vector(30, 0.0);
  const auto finding = finding_of_parity(judged(planted.step()));
  EXPECT_EQ(finding.rule, kParityParameters.code);
  EXPECT_THAT(finding.message, HasSubstr("layer2, with no gradient in one process"));
  EXPECT_EQ(finding.evidence.at("factors").at(0).at("rest"), -1.0);
}

// Gradients of one process that no weights of the ranks' explain.
void mix(Planted& planted, const std::vector<std::size_t>& parameters) {
  for (const auto p : parameters) planted.one[p] = planted.random();
}

TEST(ParityForward, NamesTheFirstModule) {
  Planted planted(2);
  mix(planted, {0, 1, 2});
  auto step = planted.step();
  step.loss = 1.4;
  step.module = {"block.norm", "BatchNorm2d", 0.12};
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityForward.code);
  EXPECT_EQ(finding.certainty, Certainty::kLikely);
  EXPECT_THAT(finding.message, HasSubstr("the outputs of block.norm (BatchNorm2d) are not those"));
  EXPECT_THAT(finding.message, HasSubstr("1.5 on average over the ranks and 1.4 in one process"));
  EXPECT_EQ(finding.evidence.at("module"), "block.norm");
  EXPECT_THAT(finding.prescription.text, HasSubstr("SyncBatchNorm"));
  step.module = {"", "Router", 0.12};
  const auto other = finding_of_parity(judged(step));
  EXPECT_THAT(other.message, HasSubstr("the outputs of Router are not those"));
  EXPECT_THAT(other.prescription.text, Not(HasSubstr("SyncBatchNorm")));
}

// BatchNorm, and a loss that is a sum over the samples.
TEST(ParityForward, StandsBesideAFactorThatTheLossHasToo) {
  Planted planted(2);
  mix(planted, {0, 1, 2});
  for (std::size_t p : {0, 1, 2})
    planted.ranks[p] = sum_of({planted.one[p], planted.random()}, {0.5, 0.02});
  auto step = planted.step();
  step.loss = 3.1;
  step.module = {"block.norm", "BatchNorm2d", 0.12};
  const auto parity = judged(step);
  ASSERT_THAT(parity.findings, SizeIs(2));
  EXPECT_EQ(parity.findings[0].rule, kParityScale.code);
  EXPECT_EQ(parity.findings[0].certainty, Certainty::kLikely);
  EXPECT_EQ(parity.findings[0].evidence.at("k"), 0.5);
  EXPECT_THAT(parity.findings[0].message, HasSubstr("a loss that is a sum over the samples"));
  EXPECT_EQ(parity.findings[1].rule, kParityForward.code);
  // Losses of zero have no factor.
  step.rank_losses = {0.0, 0.0};
  step.loss = 0.0;
  EXPECT_EQ(finding_of_parity(judged(step)).rule, kParityForward.code);
  // The statistics alone: the loss is nearly the same.
  step.rank_losses = {1.0, 2.0};
  step.loss = 1.4;
  EXPECT_EQ(finding_of_parity(judged(step)).rule, kParityForward.code);
}

TEST(ParityForward, HasTheLossAlone) {
  Planted planted(2);
  mix(planted, {0, 1, 2});
  auto step = planted.step();
  step.loss = 1.4;
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityForward.code);
  EXPECT_THAT(finding.message, HasSubstr("no scale and no weighting of the ranks explains"));
  EXPECT_THAT(finding.parameters, IsEmpty());
}

TEST(ParityForward, IsTheCauseWhereNoLossIsKnown) {
  Planted planted(2);
  mix(planted, {0, 1, 2});
  auto step = planted.step();
  step.rank_losses = {};
  step.loss = 0;
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityForward.code);
  EXPECT_THAT(finding.message, HasSubstr("The gradients differ: in step 1 the program does not say "
                                         "what its loss is"));
}

TEST(ParityForward, NamesTheParametersOfATermOfTheWholeBatch) {
  Planted planted(2);
  mix(planted, {1});
  auto step = planted.step();
  step.loss = 1.4;
  const auto finding = finding_of_parity(judged(step));
  EXPECT_EQ(finding.rule, kParityForward.code);
  ASSERT_THAT(finding.parameters, SizeIs(1));
  EXPECT_EQ(finding.parameters[0].name, "layer1");
  EXPECT_THAT(finding.message, HasSubstr("a term of the loss depends on the whole batch"));
}

void deal(ParityFigures& figures) { figures.dealt = true; }

// Where batches are dealt out, the gradients of single ranks are what the ranks computed, and say
// nothing of how one process would mix the samples.
TEST(ParityForward, IsNotTheCauseOfTheSameLossWhereBatchesAreDealtOut) {
  Planted planted(2);
  mix(planted, {1});
  auto step = planted.step();
  EXPECT_EQ(finding_of_parity(judged(step, 2, deal)).rule, kParityParameters.code);
  step.loss = 1.4;
  EXPECT_EQ(finding_of_parity(judged(step, 2, deal)).rule, kParityForward.code);
}

TEST(ParityForward, SaysWhatPositionsCountFrom) {
  Planted planted(2);
  mix(planted, {0, 1, 2});
  auto step = planted.step();
  step.module = {"wpe", "Embedding", 0.05};
  EXPECT_THAT(finding_of_parity(judged(step, 2, deal)).prescription.text,
              HasSubstr("positions count from the beginning of the whole"));
  EXPECT_THAT(finding_of_parity(judged(step)).prescription.text, Not(HasSubstr("positions")));
}

}  // namespace
}  // namespace ddp_doctor
