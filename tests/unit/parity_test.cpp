// SPDX-License-Identifier: BSD-3-Clause
// The ranks against one process: gradients are small vectors here, and the judge gets their inner
// products, as the reference writes them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/parity/judge.h"
#include "lib/report/compare/against_one_process.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/merge/read_json.h"
#include "lib/report/render/render.h"
#include "lib/report/value/verdict.h"
#include "tests/temporary_folder.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Vector sum_of(const std::vector<Vector>& vectors, const Vector& weights) {
  Vector sum(vectors.front().size(), 0.0);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += weights[i] * vectors[i][j];
  }
  return sum;
}

Vector times(double k, const Vector& vector) { return sum_of({vector}, {k}); }

std::vector<double> triangle_of(const std::vector<Vector>& vectors) {
  std::vector<double> triangle;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = i; j < vectors.size(); ++j)
      triangle.push_back(dot(vectors[i], vectors[j]));
  }
  return triangle;
}

Products products_of(const std::vector<Vector>& vectors) {
  return {vectors.size(), triangle_of(vectors)};
}

// ---- Products

TEST(Products, HaveLengthsDistancesAndScales) {
  const Products products = products_of({{6, 8}, {3, 4}, {4, -3}, {0, 0}});
  EXPECT_DOUBLE_EQ(products.norm(0), 10);
  EXPECT_DOUBLE_EQ(products.distance(0, 1), 5);
  EXPECT_DOUBLE_EQ(products.distance(0, 1, 2.0), 0);
  EXPECT_DOUBLE_EQ(products.scale(0, 1), 2);
  EXPECT_DOUBLE_EQ(products.scale(1, 0), 0.5);
  EXPECT_DOUBLE_EQ(products.scale(1, 2), 0);  // at a right angle
  EXPECT_DOUBLE_EQ(products.scale(0, 3), 0);  // of nothing
  EXPECT_DOUBLE_EQ(products.at(2, 0), products.at(0, 2));
}

TEST(Products, AddUpAsIfTheVectorsWereOneLongOne) {
  Products all;
  all += products_of({{1, 2}, {3, 4}});
  all += products_of({{5}, {6}});
  const Products whole = products_of({{1, 2, 5}, {3, 4, 6}});
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) EXPECT_DOUBLE_EQ(all.at(i, j), whole.at(i, j));
  }
}

TEST(Mixture, FindsTheWeightsAndWhatTheyLeave) {
  const Vector a = {1, 2, 0}, b = {0, 1, -1};
  const auto fits = mixture_of(products_of({sum_of({a, b}, {0.25, -3}), a, b}), 0, 1, 2);
  EXPECT_THAT(fits.weights, ElementsAre(DoubleNear(0.25, 1e-12), DoubleNear(-3, 1e-12)));
  EXPECT_NEAR(fits.rest, 0, 1e-6);
  const Vector apart = {2, -1, -1};  // at a right angle to both
  const auto rest = mixture_of(products_of({sum_of({a, b, apart}, {1, 1, 0.5}), a, b}), 0, 1, 2);
  EXPECT_THAT(rest.weights, ElementsAre(DoubleNear(1, 1e-12), DoubleNear(1, 1e-12)));
  EXPECT_NEAR(rest.rest, 0.5 * std::sqrt(6.0), 1e-12);
}

TEST(Mixture, NeedsARowExchange) {
  // After the first column, the pivot of the second one is in the last row.
  const std::vector<Vector> basis = {{1, 0, 0}, {1, 1e-6, 0}, {0, 1, 2}};
  const Vector weights = {2, 3, 4};
  const auto found =
      mixture_of(products_of({sum_of(basis, weights), basis[0], basis[1], basis[2]}), 0, 1, 3);
  EXPECT_THAT(found.weights,
              ElementsAre(DoubleNear(2, 1e-3), DoubleNear(3, 1e-3), DoubleNear(4, 1e-3)));
}

TEST(Mixture, OfDependentVectorsHasNoWeights) {
  const auto found = mixture_of(products_of({{3, 0}, {1, 2}, {2, 4}}), 0, 1, 2);
  EXPECT_THAT(found.weights, Each(0.0));
  EXPECT_DOUBLE_EQ(found.rest, 3);
}

TEST(Mixture, LeavesOutAVectorOfZeros) {
  const auto found = mixture_of(products_of({{2, 6}, {1, 3}, {0, 0}}), 0, 1, 2);
  EXPECT_THAT(found.weights, ElementsAre(DoubleNear(2, 1e-12), 0.0));
  EXPECT_NEAR(found.rest, 0, 1e-6);
}

// ---- The judge

constexpr double kRounding = 1e-7;

// A step in which one process takes the mean of what the ranks' samples give, and so do the ranks.
struct Planted {
  explicit Planted(std::size_t count, std::size_t parameters = 3) : alone(parameters) {
    for (std::size_t p = 0; p < parameters; ++p) {
      names.push_back("layer" + std::to_string(p));
      for (std::size_t i = 0; i < count; ++i) alone[p].push_back(random());
    }
    for (std::size_t i = 0; i < count; ++i) of.push_back(static_cast<int>(i));
    weigh(Vector(count, 1.0 / static_cast<double>(count)),
          Vector(count, 1.0 / static_cast<double>(count)));
  }

  Vector random() {
    std::normal_distribution<double> normal;
    Vector vector(30);
    for (auto& value : vector) value = normal(generator);
    return vector;
  }

  // What each of these contributes to the gradient of the ranks, and to that of one process.
  void weigh(const Vector& by_ranks, const Vector& by_one) {
    ranks.clear(), one.clear();
    for (const auto& vectors : alone) {
      ranks.push_back(sum_of(vectors, by_ranks));
      one.push_back(sum_of(vectors, by_one));
    }
  }

  Vector rounded(const Vector& vector, double size) {
    return sum_of({vector, random()}, {1, size * std::sqrt(dot(vector, vector) / 30)});
  }

  ParityStep step(std::int64_t number = 1) {
    ParityStep step;
    step.step = number;
    step.alone = of;
    step.rank_losses = {1.0, 2.0};
    step.loss = 1.5;
    std::size_t next = kAlone + of.size();
    if (!padded.empty()) step.padded = {kAlone, next++};
    if (!again.empty()) step.again = next++;
    for (std::size_t p = 0; p < names.size(); ++p) {
      std::vector<Vector> vectors = {rounded(ranks[p], kRounding), one[p], rounded(one[p], order)};
      for (const auto& vector : alone[p]) vectors.push_back(rounded(vector, kRounding));
      if (!padded.empty()) vectors.push_back(padded[p]);
      if (!again.empty()) vectors.push_back(again[p]);
      step.parameters.push_back({names[p], products_of(vectors)});
    }
    return step;
  }

  std::mt19937 generator{7};
  std::vector<std::string> names;
  std::vector<std::vector<Vector>> alone;         // by parameter
  std::vector<int> of;                            // whose each of them is
  std::vector<Vector> ranks, one, padded, again;  // by parameter
  double order = kRounding;                       // what the order of the samples changes
};

Parity judged(ParityStep step, int world_size = 2,
              const std::function<void(ParityFigures&)>& change = {}) {
  ParityFigures figures;
  figures.steps.push_back(std::move(step));
  if (change) change(figures);
  return judge_parity(figures, world_size);
}

// The one finding of a conclusive comparison.
Finding finding_of_parity(const Parity& parity) {
  EXPECT_EQ(parity.inconclusive, "");
  EXPECT_THAT(parity.findings, SizeIs(1));
  return parity.findings.empty() ? Finding() : parity.findings.front();
}

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
                                         "0.7500, in proportion to the number of "));
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
  EXPECT_THAT(finding.prescription.text, HasSubstr("over all micro-batches of the step"));
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

// ---- The figures

nlohmann::json content() {
  return {
      {"version", 2},
      {"random", nlohmann::json::array()},
      {"frozen_differ", {"Teacher"}},
      {"low_precision", true},
      {"dealt", true},
      {"steps",
       {{{"step", 4},
         {"alone", {0, 1}},
         {"padded", 1},
         {"again", true},
         {"not_told", nlohmann::json::array()},
         {"module", nullptr},
         {"counts", {{"samples", {8, 6}}}},
         {"loss", {{"ranks", {1.5, nullptr}}, {"one", 1.25}}},
         {"parameters",
          {{{"name", "w"}, {"products", triangle_of({{1}, {2}, {3}, {4}, {5}, {6}, {7}})}}}}}}}};
}

class FiguresFile {
 public:
  ParityFigures of(const std::string& text) const {
    std::ofstream(file()) << text;
    return load_parity_figures(file());
  }
  std::string refusal(const std::string& text) const {
    try {
      of(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path file() const { return folder_.path() / "figures.json"; }

 private:
  TemporaryFolder folder_;
};

TEST(ParityFigures, AreRead) {
  const auto figures = FiguresFile().of(content().dump());
  ASSERT_THAT(figures.steps, SizeIs(1));
  const auto& step = figures.steps[0];
  EXPECT_EQ(step.step, 4);
  const auto& products = step.parameters.at(0).products;
  ASSERT_TRUE(step.padded);
  EXPECT_DOUBLE_EQ(products.at(kOfOne, step.padded->alone), 10);
  EXPECT_DOUBLE_EQ(products.at(kOfOne, step.padded->padded), 12);
  EXPECT_DOUBLE_EQ(products.at(kOfOne, *step.again), 14);
  EXPECT_THAT(step.rank_losses, ElementsAre(1.5, 0.0));
  EXPECT_THAT(step.counts.at("samples"), ElementsAre(8, 6));
  EXPECT_FALSE(step.module);
  EXPECT_THAT(figures.frozen_differ, ElementsAre("Teacher"));
  EXPECT_TRUE(figures.low_precision);
  EXPECT_TRUE(figures.dealt);
}

TEST(ParityFigures, HaveTheReasonWhyThereAreNone) {
  const FiguresFile file;
  write_impossible(file.file(), "no samples");
  EXPECT_EQ(load_parity_figures(file.file()).impossible, "no samples");
}

TEST(ParityFigures, AreRefusedIfDamaged) {
  const FiguresFile file;
  const std::string text = content().dump();
  auto fewer = content();
  fewer["steps"][0]["parameters"][0]["products"].erase(0);
  auto older = content();
  older["version"] = 1;
  EXPECT_THAT(file.refusal(older.dump()), HasSubstr("version 1, and this ddp-doctor reads 2"));
  auto without = content();
  without["steps"][0].erase("alone");
  for (const auto& damaged : {text.substr(0, text.size() / 2), std::string(), std::string("[]"),
                              fewer.dump(), without.dump()}) {
    EXPECT_THAT(file.refusal(damaged), HasSubstr("figures.json: cannot be read ("));
    EXPECT_THAT(file.refusal(damaged), HasSubstr("run ddp-doctor parity again"));
  }
  EXPECT_THAT(file.refusal(fewer.dump()), HasSubstr("27 inner products, not those of 7"));
}

TEST(ParityFigures, AreRefusedIfMissing) {
  const FiguresFile file;
  try {
    load_parity_figures(file.file());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run ddp-doctor parity again"));
  }
}

// ---- The report

Report report_with(Parity parity) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.info().program = "train.py";
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  add_parity(examined, std::move(parity));
  return make_report({std::move(examined)});
}

std::string rendered(const char* format, const Report& report) {
  std::ostringstream out;
  find_format(format)->render(report, {}, out);
  return out.str();
}

TEST(ParityReport, HasTheComparedStepsInEachFormat) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  const Report report = report_with(judged(planted.step(3)));
  EXPECT_EQ(verdict_of(report), "sick: DDP701 parity-scale");
  const std::string caption = "Gradients of 2 ranks against one process on the same samples";
  EXPECT_THAT(rendered("text", report),
              HasSubstr(caption + "\nstep | parameters | equal | difference | rounding alone\n"
                                  "   3 |          3 |     0 |    1.0e+00 | "));
  const auto json = nlohmann::json::parse(rendered("json", report)).at("parity");
  EXPECT_TRUE(json.at("inconclusive").is_null());
  EXPECT_EQ(json.at("steps").at(0).at("step"), 3);
  EXPECT_EQ(json.at("steps").at(0).at("parameters"), 3);
  EXPECT_EQ(json.at("steps").at(0).at("equal"), 0);
  EXPECT_NEAR(json.at("steps").at(0).at("distance").get<double>(), 1, 1e-5);
  EXPECT_THAT(rendered("markdown", report),
              HasSubstr("<details><summary>" + caption +
                        "</summary>\n\n| step | parameters | equal | difference | rounding alone "
                        "|\n|---:| ---: | ---: | ---: | ---: |\n| 3 | 3 | 0 | 1.0e+00 | "));
  const auto html = rendered("html", report);
  EXPECT_THAT(html, HasSubstr(caption));
  EXPECT_THAT(html, HasSubstr("dropout and stochastic depth are off"));
  EXPECT_THAT(rendered("prometheus", report), HasSubstr(R"(rule="DDP701",name="parity-scale"} 1)"));
}

TEST(ParityReport, IsInconclusiveWithTheReason) {
  Parity parity;
  parity.inconclusive = "no batch was drawn";
  const Report report = report_with(parity);
  EXPECT_EQ(report.health(), Health::kInconclusive);
  EXPECT_EQ(verdict_of(report),
            "inconclusive: cannot be compared with one process: no batch was drawn");
  EXPECT_THAT(rendered("text", report), Not(HasSubstr("against one process")));
  EXPECT_EQ(nlohmann::json::parse(rendered("json", report)).at("parity").at("inconclusive"),
            "no batch was drawn");
}

TEST(ParityReport, SaysWhyNothingWasComparedBesideFindings) {
  RunBuilder run(2, {"a", "b"}, 4);
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  examined.diagnosis.findings = {finding_of(kWrapperBypassed)};
  Parity parity;
  parity.inconclusive = "the ranks' own run has errors";
  add_parity(examined, std::move(parity));
  EXPECT_THAT(rendered("text", make_report({std::move(examined)})),
              HasSubstr("not compared with one process: the ranks' own run has errors"));
}

TEST(ParityReport, IsTheSameReadAgainFromJson) {
  Parity parity;
  parity.inconclusive = "no batch was drawn";
  for (const Report& report : {report_with(parity), report_with(judged(Planted(2).step()))}) {
    const std::string json = rendered("json", report);
    const Report again = read_report(json, "r.json");
    EXPECT_EQ(verdict_of(again), verdict_of(report));
    EXPECT_EQ(nlohmann::json::parse(rendered("json", again)).at("parity"),
              nlohmann::json::parse(json).at("parity"));
  }
}

TEST(ParityReport, IsHealthyInOneSentence) {
  EXPECT_THAT(verdict_of(report_with(judged(Planted(2).step()))),
              HasSubstr("healthy: gradients of 2 ranks are those of one process: 3 of 3"));
}

TEST(ParityReport, IsAbsentFromOtherReports) {
  RunBuilder run(2, {"a", "b"}, 4);
  const Report report = make_report({report_run(run.wrapper({}).build(), 0)});
  EXPECT_FALSE(nlohmann::json::parse(rendered("json", report)).contains("parity"));
  EXPECT_THAT(rendered("html", report), Not(HasSubstr("against one process")));
}

TEST(ParityReport, NestsWhatTheRunAloneSaysOfTheSame) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  RunBuilder run(2, {"a", "b"}, 4);
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  Finding alone = finding_of(kGradientScale);
  alone.where = Where{"train.py", 12, {}};
  alone.ranks = {0, 1};
  alone.first_step = 1;
  examined.diagnosis.findings = {alone};
  EXPECT_FALSE(ranks_disagree(examined));
  add_parity(examined, judged(planted.step()));
  const Report report = make_report({std::move(examined)});
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].rule, kParityScale.code);
  ASSERT_TRUE(report.findings[0].where);
  EXPECT_EQ(report.findings[0].where->line, 12);
  ASSERT_THAT(report.findings[0].consequences, SizeIs(1));
  EXPECT_EQ(report.findings[0].consequences[0].rule, kGradientScale.code);
}

TEST(ParityReport, ComparesNothingWhereTheRanksDoNotAgree) {
  RunBuilder run(2, {"a", "b"}, 4);
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  EXPECT_FALSE(ranks_disagree(examined));
  examined.diagnosis.findings = {finding_of(kWrapperBypassed)};
  EXPECT_TRUE(ranks_disagree(examined));
  examined.diagnosis.findings = {finding_of(kDuplicateData)};  // a warning
  EXPECT_FALSE(ranks_disagree(examined));
}

}  // namespace
}  // namespace ddp_doctor
