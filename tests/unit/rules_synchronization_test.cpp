// SPDX-License-Identifier: BSD-3-Clause
// The rules about gradient synchronization (DDP103 to DDP106, DDP109 to DDP113): a run on which
// each fires, and healthy runs that come near to it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/synchronized_runs.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- DDP103

TEST(StepWithoutSync, CountsTheMicroBatchesAfterTheLastReduction) {
  auto run = healthy();
  apart(run).trace("F0+ B0+ F0- B0- F0- B0-", 3);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP103"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(findings[0].parameters, IsEmpty());
  EXPECT_EQ(findings[0].evidence["micro_batches_after_the_last_reduction"], 2);
  EXPECT_EQ(findings[0].evidence["micro_batches"], 3);
}

TEST(StepWithoutSync, SeesTheLastStepOfAnEpoch) {
  auto run = healthy();
  apart(run, 3).trace("F0- B0- F0+ B0+", 2).trace("F0- B0-", 1, 3);
  const auto finding = found("DDP103", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 3);
  EXPECT_EQ(finding->evidence["steps_without_sync"], 1);
}

TEST(StepWithoutSync, StaysQuietForAccumulationDoneRight) {
  EXPECT_THAT(diagnosed(healthy().trace("F0- B0-*3 F0+ B0+", 4)), IsEmpty());
  EXPECT_THAT(diagnosed(healthy().trace("F0- F0+ B0+", 1)), IsEmpty());
}

TEST(StepWithoutSync, StaysQuietWhereGradientsAreAveragedByHandUnderNoSync) {
  EXPECT_THAT(diagnosed(healthy().trace("F0- B0- F0- B0- Cg*2", 2)), IsEmpty());
}

TEST(StepWithoutSync, LeavesALastMicroBatchThatWasReducedToOtherRules) {
  auto run = healthy();
  apart(run).trace("F0- B0- F0+ B0+", 2);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP102"));
}

// ---- DDP104

TEST(PartialSync, NamesWhatWasLeftOut) {
  auto run = healthy();
  run.differ(1, 1, Stage::kGradient, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP104"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102"));
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_EQ(findings[0].evidence["parameters_synchronized"], 1);
  EXPECT_EQ(findings[0].evidence["hand_written"], false);
}

TEST(PartialSync, PointsAtTheHandWrittenCall) {
  auto run = by_hand();
  run.call(all_reduce("gradient of body.weight")).differ(1, 1, Stage::kGradient, 1);
  const auto finding = found("DDP104", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["hand_written"], true);
  EXPECT_EQ(finding->prescription.strategy, "allreduce-flat");
  ASSERT_TRUE(finding->where);
  EXPECT_EQ(finding->where->line, 31);
}

TEST(PartialSync, IsNotHandWrittenForAReductionOfTheLoss) {
  auto run = healthy();
  run.call(all_reduce("")).differ(1, 1, Stage::kGradient, 1);
  const auto finding = found("DDP104", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["hand_written"], false);
}

TEST(PartialSync, StaysQuietForTheZerosOfFindUnused) {
  auto run = RunBuilder(2, {"a", "b"}, 3).wrapper({{"find_unused_parameters", "1"}});
  run.usage(0, [](int rank, Usage& usage) { usage.used = rank == 0; });
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(PartialSync, LeavesAGradientThatOnlySomeRanksHaveToTheGraphRules) {
  auto run = healthy();
  run.unused(1, 0);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP202"));
}

TEST(PartialSync, StaysQuietWhereNothingWasSynchronized) {
  auto run = healthy();
  apart(run);
  EXPECT_FALSE(found("DDP104", run));
  auto alike = healthy();  // both ranks computed the same gradient of body.weight: no sign of sync
  alike.observe(1, 0, Stage::kLocalGradient, 50).differ(1, 1, Stage::kGradient, 1);
  EXPECT_FALSE(found("DDP104", alike));
}

// ---- DDP105

TEST(ParametersReplaced, AreNamedAndExplainTheRest) {
  auto run = healthy();
  apart(run, 2).usage(
      1, [](int, Usage& usage) { usage.replaced = true; }, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP105"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_EQ(findings[0].evidence["parameters_replaced"], 1);
}

TEST(ParametersReplaced, StayQuietWhereGradientsAgree) {
  auto run = healthy();  // wrapped again, or averaged by hand
  run.usage(1, [](int, Usage& usage) { usage.replaced = true; });
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// The gradient of a parameter that no optimizer holds is not recorded.
TEST(ParametersReplaced, AreLikelyWhereTheOptimizerHoldsTheFormerOnes) {
  auto run = healthy();
  run.usage(1, [](int, Usage& usage) {
    usage.replaced = true;
    usage.in_optimizer = false;
  });
  const auto finding = found("DDP105", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  run.usage(1, [](int, Usage& usage) { usage.used = false; });
  EXPECT_FALSE(found("DDP105", run)) << "nor does any loss depend on it";
}

TEST(ParametersReplaced, StayQuietWhereNoneWas) {
  auto run = healthy();
  apart(run);
  EXPECT_FALSE(found("DDP105", run));
}

// ---- DDP106

RunBuilder with_a_head_outside(bool in_the_wrapped_module) {
  auto run = healthy();
  run.trace(in_the_wrapped_module ? "F0+ B0+" : "F0+ B0+u", 1);
  run.tensors([&](int, TensorInfo& tensor) {
    if (tensor.id == 1) tensor.ddp_index.reset();
    if (tensor.id == 0 || in_the_wrapped_module) tensor.wrapper = 0;
  });
  return run;
}

TEST(ParametersOutside, AreThoseOfAModuleThatWasNeverWrapped) {
  auto run = with_a_head_outside(false);
  run.differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, 1);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP106"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_EQ(findings[0].evidence["steps_apart"], 3);
  EXPECT_THAT(findings[0].message, HasSubstr("never wrapped"));
}

TEST(ParametersOutside, AreThoseUnfrozenAfterWrapping) {
  auto run = with_a_head_outside(true);
  run.differ(1, 1, Stage::kGradient, 2);
  const auto finding = found("DDP106", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_EQ(finding->evidence["in_a_wrapped_module"], true);
  EXPECT_THAT(finding->message, HasSubstr("frozen"));
}

TEST(ParametersOutside, StayQuietForAFrozenOne) {
  auto run = with_a_head_outside(true);
  run.tensors([](int, TensorInfo& tensor) { tensor.trainable = tensor.id == 0; });
  run.unused(0, 1).unused(1, 1);
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(ParametersOutside, StayQuietWhereTheyAreAveragedByHand) {
  EXPECT_THAT(diagnosed(with_a_head_outside(false)), IsEmpty());
}

TEST(ParametersOutside, StayQuietWhereNoOptimizerHoldsThem) {
  auto run = with_a_head_outside(false);
  run.differ(1, 1, Stage::kGradient, 1);
  run.usage(1, [](int, Usage& usage) { usage.in_optimizer = false; });
  EXPECT_FALSE(found("DDP106", run));
}

TEST(ParametersOutside, StayQuietWithoutAnyWrapper) {
  auto run = by_hand();
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  apart(run);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP102"));
}

// ---- DDP109

TEST(RepeatedBackward, CountsWhatWasNotReduced) {
  auto run = healthy();
  apart(run, 2).trace("F0+ B0+", 1).trace("F0+ B0+r B0-r B0-", 3, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP109"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_EQ(findings[0].evidence["not_reduced"], 2);
  EXPECT_EQ(findings[0].evidence["backwards"], 3);
}

TEST(RepeatedBackward, IsAlsoTwoForwardsBeforeTwoBackwards) {
  auto run = healthy();
  apart(run).trace("F0+*2 B0+ B0-", 2);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP109"));
}

TEST(RepeatedBackward, StaysQuietForAForwardEach) {
  auto run = healthy();
  run.trace("F0+ B0+ F0+ B0+", 2);
  EXPECT_FALSE(found("DDP109", run));
  apart(run);
  EXPECT_FALSE(found("DDP109", run)) << "gradients that differ for another reason";
}

TEST(RepeatedBackward, StaysQuietWhereGradientsAgreeAllTheSame) {
  EXPECT_THAT(diagnosed(healthy().trace("F0+ B0+r B0- Cg*2", 2)), IsEmpty());
}

TEST(RepeatedBackward, StaysQuietForAccumulation) {
  auto run = healthy();
  apart(run).trace("F0- B0- F0- B0-", 2);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP103"));
}

// ---- DDP108: in hooks on parameters

RunBuilder hooked_gradients(const std::string& key, const std::string& rank0,
                            const std::string& rank1) {
  auto run = healthy();
  run.fact(0, 2, "gradient hook head.weight", key, rank0);
  run.fact(1, 2, "gradient hook head.weight", key, rank1);
  return run;
}

TEST(ClipBeforeSync, SeesElementsThatAHookClamps) {
  const auto finding = found("DDP108", hooked_gradients("clamped", "0.01", "0.01"));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_THAT(finding->message, HasSubstr("elements of at most 0.01"));
}

TEST(ClipBeforeSync, SeesNormsThatAHookMakesEqual) {
  const auto finding = found("DDP108", hooked_gradients("scaled", "[3.0,1.0]", "[2.0,1.0]"));
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->message, HasSubstr("a norm of 1"));
}

TEST(ClipBeforeSync, StaysQuietForAConstantFactorInAHook) {
  EXPECT_FALSE(found("DDP108", hooked_gradients("scaled", "[3.0,1.5]", "[2.0,1.0]")));
  EXPECT_FALSE(found("DDP108", hooked_gradients("scaled", "[3.0,1.5]", "[3.0,1.5]")));
}

// ---- DDP110

TEST(AutogradGradBypass, IsAGradientThatNoBackwardMade) {
  auto run = healthy();
  apart(run).trace("F0+ G", 0);
  for (int tensor : {0, 1}) {
    run.usage(tensor, [](int, Usage& usage) {
      usage.used = false;
      usage.assigned = true;
    });
  }
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP110"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(findings[0].parameters, IsEmpty()) << "all of them";
  EXPECT_EQ(findings[0].evidence["parameters_assigned"], 2);
}

TEST(AutogradGradBypass, StaysQuietWhereAssignedGradientsAgree) {
  auto run = healthy();
  run.usage(0, [](int, Usage& usage) {
    usage.used = false;
    usage.assigned = true;
  });
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(AutogradGradBypass, StaysQuietWhereABackwardMadeThem) {
  auto run = healthy();
  apart(run).trace("F0+ G B0+", 1);  // a gradient penalty
  EXPECT_FALSE(found("DDP110", run));
}

// ---- DDP112

RunBuilder in_two_groups(int world_size = 4) {
  auto run = healthy(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    for (int tensor : {0, 1}) {
      run.observe(rank, tensor, Stage::kGradient, 200 + rank * 2 / world_size);
      run.observe(rank, tensor, Stage::kWeight, 210 + rank * 2 / world_size);
    }
  }
  return run;
}

TEST(WrongProcessGroup, ShowsTheGroupsThatAgree) {
  const auto findings = diagnose(in_two_groups().build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP112"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(findings[0].message, HasSubstr("[0, 1], [2, 3]"));
}

TEST(WrongProcessGroup, StaysQuietForGroupsThatBeganWithOtherWeights) {
  auto run = in_two_groups();
  for (int rank : {2, 3}) run.differ(rank, 0, Stage::kWeight, 0);
  EXPECT_FALSE(found("DDP112", run)) << "two models, each on two ranks";
}

TEST(WrongProcessGroup, StaysQuietWhereOneRankStandsAlone) {
  auto run = healthy(4);
  for (int tensor : {0, 1}) run.differ(3, tensor, Stage::kGradient, 1);
  EXPECT_FALSE(found("DDP112", run));
}

TEST(WrongProcessGroup, StaysQuietWhereNobodySynchronizesAndGroupsHaveTheSameData) {
  auto run = in_two_groups();
  for (int rank = 0; rank < 4; ++rank) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kLocalGradient, 90);
  }
  EXPECT_FALSE(found("DDP112", run));
}

TEST(WrongProcessGroup, StaysQuietWhereAllAgree) { EXPECT_THAT(diagnosed(healthy(4)), IsEmpty()); }

// ---- DDP113

TEST(RedundantSync, CountsReductionsPerStep) {
  const auto findings = diagnose(healthy().trace("F0+ B0+ F0+ B0+ F0+ B0+", 3).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP113"));
  EXPECT_EQ(findings[0].severity, Severity::kAdvice);
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_EQ(findings[0].evidence["reductions_per_step"], 3);
  EXPECT_EQ(findings[0].evidence["reduced_again_by_hand"], false);
}

TEST(RedundantSync, SeesAHandWrittenOneOnTopOfTheReducers) {
  auto run = healthy();
  run.call(all_reduce("gradient of body.weight"));
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 31);
  }
  const auto finding = found("DDP113", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["reduced_again_by_hand"], true);
  ASSERT_TRUE(finding->where);
  EXPECT_EQ(finding->where->line, 31);
}

TEST(RedundantSync, KeepsTheReductionOfWhatNoWrapperCovers) {
  auto run = with_a_head_outside(true);
  run.call(all_reduce("gradient of body.weight"));
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 31);
  }
  const auto finding = found("DDP113", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->prescription.text,
            "Limit the hand-written all-reduce to what no wrapper covers (head.weight).");
}

TEST(RedundantSync, StaysQuietWhereOnlyThatIsReducedByHand) {
  auto run = with_a_head_outside(true);
  run.call(all_reduce("gradient of head.weight"));
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 31);
  }
  EXPECT_FALSE(found("DDP113", run));
}

// Once it read the call of the first redundant step, which had none.
TEST(RedundantSync, FindsTheCallInALaterStepThanTheFirst) {
  auto run = healthy();
  run.trace("F0+ B0+ F0+ B0+", 2).call(all_reduce("gradient of body.weight"), 2);
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 31, 2);
  }
  const auto finding = found("DDP113", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 1);
  EXPECT_EQ(finding->where->line, 31);
}

TEST(RedundantSync, IsOnlyAdviceForADiscriminatorWithTwoBackwards) {
  auto run = healthy();
  run.trace("F0+ B0+ F0+ B0+", 2);  // real and fake, a forward and a reduction each
  for (const auto& finding : diagnose(run.build()).findings)
    EXPECT_EQ(finding.severity, Severity::kAdvice) << finding.rule;
}

TEST(RedundantSync, StaysQuietForOneReductionPerStep) {
  EXPECT_THAT(diagnosed(healthy().trace("F0- B0-*3 F0+ B0+", 4)), IsEmpty());
}

TEST(RedundantSync, StaysQuietWhereOnlyTheLossIsReducedByHand) {
  auto run = healthy();
  run.call(all_reduce("")).trace("F0+ B0+ C", 1);
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 31);
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(RedundantSync, StaysQuietWhereTheHandWrittenOneIsTheFirst) {
  auto run = healthy();
  run.trace("F0- B0- Cg*2", 1).forget(Stage::kLocalGradient);
  run.call(all_reduce("gradient of body.weight"));
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 60 + rank);
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// ---- causes

TEST(Causes, ABackwardThatWasNotReducedStandsAboveThePartItLeftOut) {
  auto run = healthy();
  run.trace("F0+ B0+r B0-", 2).differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, 1);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP109"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP102", "DDP104", "DDP301"));
}

TEST(Causes, NothingIsExplainedByWhatCameLater) {
  auto run = healthy();
  apart(run).trace("F0- B0-", 1, 3);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP102", "DDP103"));
}

}  // namespace
}  // namespace ddp_doctor
