// SPDX-License-Identifier: BSD-3-Clause
// The rules about the state of the replicas (DDP303 to DDP308): a run on which each fires, and
// healthy runs that come near to it. DDP301 and DDP302 are in rules_test.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunBuilder healthy(const std::string& broadcast_buffers = "1") {
  return RunBuilder(2, {"body.weight", "head.weight"}, 4)
      .wrapper({{"find_unused_parameters", "0"}, {"broadcast_buffers", broadcast_buffers}})
      .tensors([](int, TensorInfo& tensor) { tensor.wrapper = 0; })
      .trace("F0+ B0+", 1);
}

// ---- DDP303

TEST(BuffersDrift, NamesTheBuffersOfAWrapperThatDoesNotBroadcast) {
  auto run = healthy("0");
  const int mean = run.buffer("bn.running_mean", 0);
  run.buffer("bn.num_batches_tracked", 0);
  run.differ(1, mean, Stage::kBuffer, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP303"));
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_THAT(names_of(findings[0]), ElementsAre("bn.running_mean"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_EQ(findings[0].evidence["steps_apart"], 3);
  EXPECT_THAT(findings[0].message, HasSubstr("broadcast_buffers=False"));
}

TEST(BuffersDrift, SeesThoseOfAHandWrittenLoop) {
  RunBuilder run(2, {"w"}, 3);
  run.differ(1, run.buffer("bn.running_mean", {}), Stage::kBuffer, 1);
  const auto finding = found("DDP303", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 1);
  EXPECT_THAT(finding->message, HasSubstr("hand-written"));
}

TEST(BuffersDrift, StaysQuietWhereTheNextForwardBroadcasts) {
  auto run = healthy();
  run.differ(1, run.buffer("bn.running_mean", 0), Stage::kBuffer, 1);
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(BuffersDrift, StaysQuietWhereBuffersAgreeWithoutABroadcast) {
  auto run = healthy("0");
  run.buffer("bn.running_mean", 0);  // SyncBatchNorm
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// Once a warning that nothing brings them together, although the program does.
TEST(BuffersDrift, StaysQuietWhereTheProgramBringsThemTogether) {
  auto run = healthy("0");
  const int mean = run.buffer("bn.running_mean", 0);
  run.observe(1, mean, Stage::kBuffer, 71, 2, 2);
  EXPECT_THAT(diagnosed(run), IsEmpty());
  run.observe(1, mean, Stage::kBuffer, 71, 4, 4);
  EXPECT_THAT(diagnosed(run), IsEmpty()) << "apart again until the next time";
}

// ---- DDP304

RunBuilder with_rates(const std::string& rank0, const std::string& rank1) {
  auto run = healthy();
  const std::string before = R"([{"lr":0.1,"weight_decay":0.01}])";
  for (int rank : {0, 1}) {
    run.fact(rank, 1, "optimizer 0", "groups", before);
    run.fact(rank, 3, "optimizer 0", "groups", rank == 0 ? rank0 : rank1);
  }
  return run;
}

TEST(OptimizerDiffers, NamesTheHyperParameterAndExplainsTheDrift) {
  auto run =
      with_rates(R"([{"lr":0.1,"weight_decay":0.01}])", R"([{"lr":0.05,"weight_decay":0.01}])");
  run.differ(1, 0, Stage::kWeight, 3);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP304"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP301"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 3);
  EXPECT_EQ(findings[0].evidence["hyper_parameter"], "lr");
  EXPECT_EQ(findings[0].evidence["by_rank"], (std::vector<std::string>{"0.1", "0.05"}));
}

TEST(OptimizerDiffers, PrintsAsManyDigitsAsItTakesToTellThemApart) {
  const auto rates = [](const std::string& rank0, const std::string& rank1) {
    return found("DDP304", with_rates(R"([{"lr":)" + rank0 + "}]", R"([{"lr":)" + rank1 + "}]"))
        ->evidence["by_rank"];
  };
  EXPECT_EQ(rates("0.09999999999999999", "0.05"), (std::vector<std::string>{"0.1", "0.05"}));
  EXPECT_EQ(rates("0.09999999999999999", "0.1"),
            (std::vector<std::string>{"0.09999999999999999", "0.1"}));
}

TEST(OptimizerDiffers, SeesAGroupThatOneRankLacks) {
  const auto finding = found("DDP304", with_rates(R"([{"lr":0.1},{"lr":0.2}])", R"([{"lr":0.1}])"));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["group"], 1);
}

TEST(OptimizerDiffers, StaysQuietForAScheduleThatAllFollow) {
  const std::string later = R"([{"lr":0.05,"weight_decay":0.01}])";
  EXPECT_THAT(diagnosed(with_rates(later, later)), IsEmpty());
}

TEST(OptimizerDiffers, StaysQuietForAnotherOptimizerThatHasOtherRates) {
  auto run = healthy();
  for (int rank : {0, 1}) {
    run.fact(rank, 1, "optimizer 0", "groups", R"([{"lr":0.1}])");
    run.fact(rank, 1, "optimizer 1", "groups", R"([{"lr":0.4}])");
  }
  run.each_step([](int, StepRecord& step) { step.optimizer = static_cast<int>(step.step % 2); });
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// ---- DDP305

RunBuilder before_step(int step, double rank0, double rank1) {
  auto run = healthy();
  for (int tensor : {0, 1}) {
    run.sample(0, tensor, Stage::kWeightBefore, {1.0, 2.0});
    run.sample(1, tensor, Stage::kWeightBefore, {1.0, 2.0});
  }
  run.sample(0, 1, Stage::kWeightBefore, {1.0, rank0}, step);
  run.sample(1, 1, Stage::kWeightBefore, {1.0, rank1}, step);
  return run;
}

TEST(UpdateOutsideOptimizer, NamesTheStepBeforeWhichItHappened) {
  auto run = before_step(3, 2.0, 2.5);
  run.differ(1, 1, Stage::kWeight, 3);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP305"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP301"));
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].first_step, 3);
  EXPECT_EQ(findings[0].evidence["parameters_changed"], 1);
}

TEST(UpdateOutsideOptimizer, IsPartOfItThatParametersWereReplaced) {
  auto run = before_step(3, 2.0, 2.5);
  run.differ(1, 1, Stage::kWeight, 3);
  run.each_step([](int, StepRecord& step) {
    for (auto& usage : step.usages) usage.replaced = usage.tensor == 1 && step.step >= 3;
  });
  const auto finding = found("DDP305", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["kind"], "replaced");
}

// Samples cover only a few positions: tensors written in place are examined completely.
TEST(UpdateOutsideOptimizer, SeesAWriteBetweenTheSampledPositions) {
  auto run = before_step(3, 2.0, 2.0);
  run.observe(1, 1, Stage::kWeightBefore, 77, 3, 3);
  const auto finding = found("DDP305", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 3);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  run.observe(0, 1, Stage::kWeightBefore, 77, 3, 3);
  EXPECT_FALSE(found("DDP305", run)) << "every rank wrote the same";
}

// Rank 0 wrote and broadcast: what a collective writes into a tensor is noticed on no other rank.
TEST(UpdateOutsideOptimizer, StaysQuietWhereWhatOneRankWroteIsBroadcast) {
  auto run = before_step(3, 2.5, 2.5);
  for (int rank : {0, 1}) run.sample(rank, 1, Stage::kWeight, {1.0, 2.0}, 2, 2);
  run.observe(0, 1, Stage::kWeightBefore, 77, 3, 3);
  EXPECT_FALSE(found("DDP305", run));
}

TEST(UpdateOutsideOptimizer, StaysQuietWhereEveryRankChangesThemAlike) {
  EXPECT_THAT(diagnosed(before_step(3, 2.5, 2.5)), IsEmpty());  // clamping, an EMA swap
}

TEST(UpdateOutsideOptimizer, LeavesWeightsThatWereApartAlreadyToOthers) {
  auto run = before_step(3, 2.0, 2.5);
  run.differ(1, 1, Stage::kWeight, 2);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP301"));
}

// Once an alarm: NaN is not equal to itself.
TEST(UpdateOutsideOptimizer, StaysQuietForNanOnEveryRank) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(diagnosed(before_step(3, nan, nan)), IsEmpty());
  EXPECT_THAT(diagnosed(before_step(3, nan, 2.0)), ElementsAre("DDP305"));
}

// A former false positive: the optimizer changed them, in the steps in between that were not
// examined.
TEST(UpdateOutsideOptimizer, StaysQuietWhereStepsInBetweenWereNotSeen) {
  auto run = before_step(4, 2.0, 2.5);
  run.differ(1, 1, Stage::kWeight, 4);
  for (int rank : {0, 1}) run.step(rank, 3).examined = false;
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP301"));
}

TEST(UpdateOutsideOptimizer, BlamesALoadAmongTheStepsThatWereNotSeen) {
  const auto run_of = [](std::int64_t loaded, bool synchronized = true) {
    auto run = before_step(4, 2.0, 2.5);
    if (!synchronized) run.differ(1, 1, Stage::kGradient, 4);
    run.differ(1, 1, Stage::kWeight, 4);
    for (int rank : {0, 1}) run.step(rank, 3).examined = false;
    run.fact(1, loaded, "wrapper 0", "loaded", "2");
    run.record(1).sites.push_back({"load_state_dict 2", loaded, "resume.py", 7, {}});
    return diagnose(run.build()).findings;
  };
  const auto findings = run_of(3);
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP305"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP301"));
  EXPECT_EQ(findings[0].certainty, Certainty::kLikely);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].where->line, 7);
  EXPECT_THAT(findings[0].message, HasSubstr("only rank 1 called load_state_dict"));
  EXPECT_THAT(codes_of(run_of(2)), ElementsAre("DDP301")) << "they were equal after it";
  EXPECT_THAT(codes_of(run_of(3, false)), testing::Not(testing::Contains("DDP305")))
      << "gradients explain it";
}

// Frozen weights need not be examined in consecutive steps: no optimizer changes them in between.
TEST(UpdateOutsideOptimizer, SeesThatAFrozenWeightChanged) {
  const auto run_of = [](bool wrapped) {
    auto run = healthy();
    run.tensors([wrapped](int, TensorInfo& tensor) {
      tensor.wrapper = 0;
      if (tensor.id != 1) return;
      if (!wrapped) tensor.wrapper.reset();
      tensor.trainable = false;
      tensor.ddp_index.reset();
    });
    for (int rank : {0, 1}) run.step(rank, 3).examined = false;
    run.differ(1, 1, Stage::kWeight, 4);
    return run;
  };
  const auto findings = diagnose(run_of(true).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP305"));
  EXPECT_EQ(findings[0].first_step, 4);
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_THAT(findings[0].message, HasSubstr("frozen weights"));
  EXPECT_THAT(diagnosed(run_of(false)), IsEmpty()) << "rank 0's own average";
}

// ---- DDP306

TEST(ModelMismatch, NamesWhatOneRankLacks) {
  auto run = healthy();
  run.record(1).tensors.pop_back();
  for (int rank : {0, 1}) run.raise(rank, 0, "DDP expects same model across all ranks, but ...");
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP306"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].evidence["parameters_by_rank"], (std::vector<int>{2, 1}));
  EXPECT_THAT(findings[0].message, HasSubstr("is missing on rank 1"));
}

TEST(ModelMismatch, ShowsTheShapesAndTypes) {
  auto run = healthy();
  run.tensors([](int rank, TensorInfo& tensor) {
    if (rank == 1 && tensor.id == 1) tensor.sizes = {2, 3};
    if (rank == 1 && tensor.id == 0) tensor.dtype = "bfloat16";
  });
  const auto finding = found("DDP306", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("body.weight", "head.weight"));
  EXPECT_THAT(finding->message, HasSubstr("float32 [1] on rank 0 and is bfloat16 [1] on rank 1"));
}

TEST(ModelMismatch, StaysQuietForTheSameSetFoundInAnotherOrder) {
  auto run = healthy();
  auto& tensors = run.record(1).tensors;
  std::swap(tensors[0].name, tensors[1].name);
  std::swap(tensors[0].ddp_index, tensors[1].ddp_index);
  EXPECT_FALSE(found("DDP306", run));
}

TEST(ModelMismatch, StaysQuietForAnotherModelBesideTheWrappedOne) {
  auto run = healthy();
  TensorInfo teacher = run.record(0).tensors[0];
  teacher.id = 2;
  teacher.name = "teacher.weight";
  teacher.trainable = false;
  teacher.wrapper.reset();
  run.record(0).tensors.push_back(teacher);
  EXPECT_FALSE(found("DDP306", run));
}

TEST(ModelMismatch, StaysQuietWhereARankLeftNothing) {
  auto run = healthy();
  run.record(1).tensors.clear();
  run.record(1).steps.clear();
  EXPECT_FALSE(found("DDP306", run));
}

// ---- DDP307

TEST(OptimizerStale, NamesTheLiveParameters) {
  auto run = RunBuilder(2, {"body.weight", "old.weight"}, 3);
  run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
  run.unused(0, 1).unused(1, 1);
  const auto finding = found("DDP307", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 1);
  EXPECT_THAT(finding->ranks, ElementsAre(0, 1));
  EXPECT_THAT(names_of(*finding), ElementsAre("body.weight"));
  EXPECT_EQ(finding->evidence["parameters_left_out"], 1);
  EXPECT_EQ(finding->evidence["parameters_held"], 1);
}

TEST(OptimizerStale, SeesParametersFromBeforeTheModelGotItsStorage) {
  auto run = RunBuilder(2, {"body.weight"}, 3);
  run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
  EXPECT_FALSE(found("DDP307", run));
  for (int rank : {0, 1}) run.fact(rank, 1, "optimizer 0", "without_storage", "57");
  const auto finding = found("DDP307", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["parameters_stale"], 57);
  EXPECT_EQ(finding->evidence["parameters_held"], 57);
}

TEST(OptimizerStale, SeesParametersThatWereFrozenAfterItWasMade) {
  auto run = RunBuilder(2, {"adapter.weight", "base.weight"}, 3);
  run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
  run.tensors([](int, TensorInfo& tensor) { tensor.trainable = tensor.id == 0; });
  run.forget(Stage::kGradient);
  EXPECT_FALSE(found("DDP307", run));
  for (int rank : {0, 1}) run.fact(rank, 1, "optimizer 0", "tensors", "[1]");
  const auto finding = found("DDP307", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("adapter.weight"));
  EXPECT_EQ(finding->evidence["parameters_held"], 1);
  // A copy of the weights, to which the program assigns gradients.
  for (int rank : {0, 1}) run.observe(rank, 1, Stage::kGradient, 5, 2);
  EXPECT_FALSE(found("DDP307", run));
}

TEST(OptimizerStale, SeesATensorThatNoModelHoldsAnyMore) {
  const auto run_of = [](const char* second) {
    auto run = RunBuilder(2, {"head.weight", second, "body.weight"}, 3);
    run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
    run.unused(0, 1).unused(1, 1);
    return run;
  };
  const auto finding = found("DDP307", run_of("parameter1"));
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_EQ(finding->evidence["parameters_stale"], 1);
  EXPECT_FALSE(found("DDP307", run_of("spare.weight"))) << "a part that is not used";
}

TEST(OptimizerStale, StaysQuietForAPartThatIsNotTrained) {
  auto run = healthy();
  run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
  EXPECT_FALSE(found("DDP307", run)) << "the head alone is trained";
}

TEST(OptimizerStale, StaysQuietForCopiesOfTheWeightsThatGetTheirGradientsByHand) {
  const auto run_of = [](int gradient) {
    auto run = RunBuilder(2, {"body.weight", "parameter1"}, 3);
    run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
    for (int rank : {0, 1}) run.unused(rank, 1).observe(rank, 1, Stage::kGradient, gradient);
    return run;
  };
  EXPECT_FALSE(found("DDP307", run_of(20)));
  EXPECT_TRUE(found("DDP307", run_of(0))) << "zeros";
}

TEST(OptimizerStale, StaysQuietForStepsInWhichAnOptimizerHasNothingToDo) {
  auto run = healthy();
  for (int rank : {0, 1}) run.unused(rank, 1, 1, 2);
  run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
  EXPECT_FALSE(found("DDP307", run)) << "its turn comes in step 3";
}

// ---- DDP308

// Each step adds 1 to every parameter. `lost`: of the first one it is taken back.
RunBuilder trained(bool lost, int steps = 6) {
  RunBuilder run(2, {"stem.bias", "head.weight"}, steps);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 1; step <= steps; ++step) {
      for (int tensor = 0; tensor < 2; ++tensor) {
        const double before = lost && tensor == 0 ? 1.0 : step;
        run.sample(rank, tensor, Stage::kWeightBefore, {before}, step, step);
        run.sample(rank, tensor, Stage::kWeight, {before + 1.0}, step, step);
      }
    }
  }
  return run;
}

TEST(UpdateUndone, NamesTheParametersAndTheBroadcastThatOverwritesThem) {
  RunBuilder run = trained(true);
  Collective call;
  call.op = "broadcast";
  call.target = "weight of stem.bias";
  call.file = "zero.py";
  call.line = 53;
  run.step(0, 3).calls = {call};
  const auto finding = found("DDP308", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("stem.bias"));
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_EQ(finding->where->line, 53);
  EXPECT_EQ(finding->evidence["steps_undone"], 5);
  EXPECT_THAT(finding->message, HasSubstr("stem.bias (index 0) was undone"));
}

TEST(UpdateUndone, StaysQuietWhereUpdatesStay) { EXPECT_FALSE(found("DDP308", trained(false))); }

TEST(UpdateUndone, StaysQuietForATrialThatIsTakenBackAsAWhole) {
  RunBuilder run = trained(true);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 1; step <= 6; ++step) {
      run.sample(rank, 1, Stage::kWeightBefore, {1.0}, step, step);
      run.sample(rank, 1, Stage::kWeight, {2.0}, step, step);
    }
  }
  EXPECT_FALSE(found("DDP308", run));
}

TEST(UpdateUndone, StaysQuietForAFewSteps) { EXPECT_FALSE(found("DDP308", trained(true, 4))); }

}  // namespace
}  // namespace ddp_doctor
