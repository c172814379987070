// SPDX-License-Identifier: BSD-3-Clause
// Programs whose ranks are not all replicas of each other, and what a verdict covers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/report/compare/make_report.h"
#include "lib/report/value/report.h"
#include "lib/report/value/verdict.h"
#include "tests/unit/synchronized_runs.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Report report_of(RunBuilder run) { return make_report({report_run(run.build(), 0)}); }

std::string verdict(RunBuilder run) { return verdict_of(report_of(std::move(run))); }

RunBuilder& everywhere(RunBuilder& run, const std::string& subject, const std::string& key,
                       const std::string& json) {
  for (int rank : {0, 1}) run.fact(rank, 1, subject, key, json);
  return run;
}

RunBuilder without_wrapper() {
  auto run = by_hand();
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  return run;
}

// Two ranks whose body differs from the start, as a shard does.
RunBuilder parts_of_a_model() {
  auto run = without_wrapper();
  run.differ(1, 0, Stage::kWeight, 0).differ(1, 0, Stage::kGradient, 1);
  return run;
}

constexpr char kTensorParallel[] =
    R"json({"placements": ["Shard(0)"], "source": "DTensor", "mesh": [0, 1]})json";
constexpr char kFullyShard[] =
    R"json({"placements": ["Shard(0)"], "source": "fully_shard", "mesh": [0, 1]})json";
constexpr char kOneOfTwoDimensions[] =
    R"json({"placements": ["Shard(0)"], "source": "fully_shard", "mesh": [0]})json";
constexpr char kMegatron[] =
    R"json({"placements": ["Shard(0)"], "source": "tensor_model_parallel"})json";

TEST(ModelParallel, IsNotJudgedAsReplicas) {
  EXPECT_THAT(diagnosed(parts_of_a_model()), Not(IsEmpty()));
  auto run = parts_of_a_model();
  for (const char* moment : {"forward", "backward"}) everywhere(run, "activations", moment, "true");
  const auto report = report_of(run);
  EXPECT_THAT(codes_of(report.findings), IsEmpty());
  EXPECT_EQ(verdict_of(report),
            "healthy: 2 ranks x 3 steps, 1 parameter compared and bit-identical, 1 parameter "
            "sharded and trained");
}

TEST(ModelParallel, WhereShardsAreDTensorsPlainParametersAreReplicas) {
  auto run = parts_of_a_model();
  everywhere(run, "placement", "other.weight", kTensorParallel);
  const auto finding = found("DDP302", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
}

TEST(ModelParallel, ThatAgreesIsHealthyAsFarAsItWasCompared) {
  auto run = by_hand();
  everywhere(run, "placement", "other.weight", kTensorParallel);
  EXPECT_EQ(verdict(run),
            "healthy: 2 ranks x 3 steps, 2 parameters compared and bit-identical, 1 tensor not "
            "compared");
}

TEST(ModelParallel, MaySeeTheSameDataOnAllRanks) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 6);
  run.wrapper({}).trace("F0+ B0+", 1);
  for (int tensor : {0, 1}) run.observe(1, tensor, Stage::kLocalGradient, 50);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP401"));
  everywhere(run, "placement", "other.weight", kTensorParallel);
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(ModelParallel, IsSeenByActivationsInBothDirections) {
  auto run = parts_of_a_model();
  everywhere(run, "activations", "backward", "true");
  EXPECT_THAT(diagnosed(run), Not(IsEmpty()));  // a hook of a gradient
  everywhere(run, "activations", "forward", "true");
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(ModelParallel, IsNotAssumedOfWhatAWrapperCovers) {
  auto run = healthy();
  apart(run);
  everywhere(run, "activations", "forward", "true");
  everywhere(run, "activations", "backward", "true");  // a contrastive loss
  EXPECT_THAT(diagnosed(run), Contains("DDP102"));
}

TEST(ModelParallel, IsSeenByPointToPointCalls) {
  auto run = parts_of_a_model();
  run.call({"isend", "", "float32", 64, "", "outside", "", "train.py", 40, 1});
  EXPECT_THAT(diagnosed(run), IsEmpty());
  auto log = parts_of_a_model();
  log.call({"send", "", "float32", 1, "", "outside", "", "train.py", 40, 1});  // a loss
  EXPECT_THAT(diagnosed(log), Not(IsEmpty()));
}

TEST(ModelParallel, LeavesOutWhatMegatronMarks) {
  auto run = parts_of_a_model();
  everywhere(run, "placement", "body.weight", kMegatron);
  const auto report = report_of(run);
  EXPECT_THAT(codes_of(report.findings), IsEmpty());
  EXPECT_EQ(verdict_of(report),
            "healthy: 2 ranks x 3 steps, 1 parameter compared and bit-identical, 1 parameter "
            "sharded and trained");
}

TEST(ShardedDataParallel, ComparesPlainParametersBesideShards) {
  auto run = without_wrapper();
  apart(run);
  everywhere(run, "placement", "other.weight", kFullyShard);
  const auto report = report_of(run);
  ASSERT_THAT(codes_of(report.findings), ElementsAre("DDP106"));
  EXPECT_THAT(report.findings.front().message, HasSubstr("plain parameters beside sharded ones"));
}

TEST(ShardedDataParallel, OverAPartOfTheRanksIsNotAllOfIt) {
  auto run = without_wrapper();
  apart(run);
  everywhere(run, "placement", "other.weight", kOneOfTwoDimensions);
  const auto finding = found("DDP114", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP114"));
}

TEST(IgnoredParameters, ThatBeginEqualAreToStayEqual) {
  auto run = healthy();
  run.tensors([](int, TensorInfo& tensor) {
    tensor.wrapper = 0;
    if (tensor.id == 1) tensor.ddp_index.reset();
  });
  everywhere(run, "wrapper 0", "ignored", R"(["head.weight"])");
  EXPECT_THAT(diagnosed(run), IsEmpty());
  run.differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, 1);
  const auto finding = found("DDP106", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
}

// ---- what a verdict covers

TEST(Coverage, NamesModelsThatNothingHolds) {
  auto run = healthy();
  everywhere(run, "unexamined", "Teacher", "12");
  const auto report = report_of(run);
  EXPECT_THAT(verdict_of(report),
              HasSubstr("2 parameters compared and bit-identical, 12 tensors not"));
  EXPECT_THAT(report.runs.front().notes, Contains(HasSubstr("12 tensors of Teacher")));
}

TEST(Coverage, IsNothingWhereEveryGradientIsZero) {
  auto run = healthy();
  for (int tensor : {0, 1}) {
    for (int rank : {0, 1}) run.observe(rank, tensor, Stage::kGradient, 0, 1);
  }
  EXPECT_EQ(verdict(run), "inconclusive: every gradient was zero in every step");
}

TEST(Coverage, IsNothingWhereNoWeightMoves) {
  auto run = healthy();
  for (int rank : {0, 1}) run.observe(rank, 0, Stage::kWeight, 7, 0);
  EXPECT_EQ(verdict(run), "healthy: 2 ranks x 3 steps, replicas bit-identical") << "one does";
  for (int rank : {0, 1}) run.observe(rank, 1, Stage::kWeight, 8, 0);
  EXPECT_EQ(verdict(run),
            "inconclusive: no weight changed in any step, although there are gradients");
}

TEST(Coverage, IsNothingWhereAnOptimizerNeverHasAGradient) {
  auto run = healthy().forget(Stage::kGradient);
  everywhere(run, "optimizer 0", "tensors", "[0, 1]");
  everywhere(run, "optimizer 0", "type", R"("SGD")");
  EXPECT_EQ(verdict(run), "healthy: 2 ranks x 3 steps, replicas bit-identical")
      << "gradients arrive, and the weights move";
  run.each_step([](int, StepRecord& step) { step.usages.clear(); });
  EXPECT_EQ(verdict(run),
            "inconclusive: no parameter of optimizer 0 (SGD) had a gradient in any step");
}

// ---- healthy programs that look sick

TEST(Quiet, AnOptimizerMayReduceInItsStep) {
  auto run = by_hand();
  for (int tensor : {0, 1}) run.differ(1, tensor, Stage::kGradient, 1);  // weights agree, and move
  EXPECT_THAT(diagnosed(run), Not(IsEmpty()));
  run.call({"all_reduce", "sum", "float32", 1, "", "optimizer", "", "optim.py", 12, 1});
  EXPECT_THAT(diagnosed(run), IsEmpty());
  EXPECT_EQ(verdict(run), "healthy: 2 ranks x 3 steps, replicas bit-identical");
}

TEST(Quiet, AnOptimizerThatReducesMayWarmUpFromALearningRateOfZero) {
  auto run = by_hand();
  for (int tensor : {0, 1}) {
    run.differ(1, tensor, Stage::kGradient, 1);
    for (int rank : {0, 1}) run.observe(rank, tensor, Stage::kWeight, 10, 0, 1);
  }
  run.call({"all_reduce", "sum", "float32", 1, "", "optimizer", "", "optim.py", 12, 1});
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(Quiet, GradientsThatDifferAtALearningRateOfZeroAreApart) {
  auto run = by_hand();
  for (int tensor : {0, 1}) {
    run.differ(1, tensor, Stage::kGradient, 1);
    for (int rank : {0, 1}) run.observe(rank, tensor, Stage::kWeight, 10, 0);
  }
  run.call({"all_reduce", "sum", "float32", 1, "", "optimizer", "", "optim.py", 12, 1});
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP102"));
}

TEST(Quiet, AStepWithoutABackwardSaysNothingAboutTheGraph) {
  auto run = healthy();
  for (int tensor : {0, 1}) run.unused(0, tensor, 3).unused(1, tensor, 3);
  EXPECT_TRUE(found("DDP203", run));
  run.trace("F0+", 0, 3);
  EXPECT_FALSE(found("DDP203", run));
}

TEST(Quiet, AnOptimizerMayStepAgainOnTheSameGradients) {
  auto run = by_hand();
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kGradient, 60 + rank, 1);
  }
  apart(run);
  for (int tensor : {0, 1}) {
    run.usage(
        tensor,
        [](int, Usage& usage) {
          usage.used = false;
          usage.assigned = true;
        },
        2, 2);
  }
  EXPECT_FALSE(found("DDP110", run));
  for (int tensor : {0, 1}) run.observe(0, tensor, Stage::kGradient, 90, 2, 2);
  EXPECT_TRUE(found("DDP110", run));
}

TEST(Quiet, AGradientByHandIsAGradient) {
  auto run = healthy();
  for (int tensor : {0, 1}) {
    run.usage(tensor, [](int, Usage& usage) { usage.used = false; });
  }
  EXPECT_FALSE(found("DDP208", run));
}

TEST(Quiet, TwoParametersMayHaveOneGradient) {
  RunBuilder run(2, {"a", "b", "c"}, 3);
  run.trace("Bu C", 1).tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  run.call({"all_reduce", "sum", "float32", 1, "", "outside", "", "train.py", 40, 1});
  for (int tensor : {0, 1, 2}) {
    run.differ(1, tensor, Stage::kWeight, 1);
    for (int rank : {0, 1}) {
      // The same for a and b on each rank, and another one for c.
      run.observe(rank, tensor, Stage::kGradient, 60 + rank + (tensor == 2 ? 20 : 0), 1);
    }
  }
  EXPECT_FALSE(found("DDP111", run));
}

TEST(Coverage, AnOptimizerOfADamagedRecordHoldsNoParameterThatIsNot) {
  auto run = healthy();
  run.fact(0, 1, "optimizer 0", "tensors", "[2000000000, -7]");
  run.fact(1, 1, "optimizer 0", "tensors", "[2000000000, -7]");
  EXPECT_THAT(report_run(run.build(), 0).coverage.nothing,
              HasSubstr("no parameter of optimizer 0"));
}

TEST(Quiet, BuffersMayBeSynchronizedOncePerEpoch) {
  auto run = by_hand();
  const int buffer = run.buffer("norm.running_mean", {});
  run.differ(1, buffer, Stage::kBuffer, 1);
  EXPECT_TRUE(found("DDP303", run));
  LoggedCall call;
  call.op = "all_reduce";
  call.target = "weight of norm.running_mean";
  for (int rank : {0, 1}) run.record(rank).calls.push_back(call);
  EXPECT_FALSE(found("DDP303", run));
}

TEST(Quiet, AnExitStatusMayBeASign) {
  const auto ending = [](int code, int other, RankExit::Kind kind = RankExit::Kind::kExited) {
    auto run = healthy();
    run.info().exits = {{0, RankExit::Kind::kExited, code}, {1, kind, other}};
    return diagnosed(run);
  };
  EXPECT_THAT(ending(77, 77), IsEmpty());
  EXPECT_THAT(ending(77, 15, RankExit::Kind::kStopped), IsEmpty());
  EXPECT_THAT(ending(1, 1), ElementsAre("DDP504"));
  EXPECT_THAT(ending(77, 3), ElementsAre("DDP504"));
}

}  // namespace
}  // namespace ddp_doctor
