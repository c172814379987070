// SPDX-License-Identifier: BSD-3-Clause
// Rules about programs whose ranks lie on a mesh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/synchronized_runs.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kMesh[] = R"json({"mesh": [[0, 1], [2, 3]], "dimensions": ["dp", "tp"]})json";

// Four ranks, two of each mesh dimension; no wrapper.
RunBuilder on_mesh(const std::string& body, const std::string& head,
                   const std::string& source = "DTensor") {
  RunBuilder run(4, {"body.weight", "head.weight"}, 4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  for (int rank = 0; rank < 4; ++rank) {
    run.fact(rank, 1, "mesh", "0", kMesh);
    const auto declare = [&](const char* subject, const char* name, const std::string& kinds) {
      run.fact(rank, 1, subject, name,
               R"({"source": ")" + source + R"(", "mesh": 0, "placements": )" + kinds + "}");
    };
    declare("placement", "body.weight", body);
    declare("placement", "head.weight", head);
  }
  return run;
}

constexpr char kSharded[] = R"json(["Replicate", "Shard(0)"])json";
constexpr char kReplicated[] = R"json(["Replicate", "Replicate"])json";

// From this step on the rank holds what others of the same number hold.
void holds(RunBuilder& run, int rank, int tensor, Stage stage, int from_step, int number) {
  for (auto& step : run.record(rank).steps) {
    for (auto& seen : step.observations) {
      if (step.step >= from_step && seen.tensor == tensor && seen.stage == stage)
        seen.digest = digest_of(number);
    }
  }
}

// The body's parts differ along tp.
RunBuilder& shard(RunBuilder& run) {
  for (const int rank : {1, 3}) {
    for (const auto stage : {Stage::kWeight, Stage::kWeightBefore, Stage::kGradient})
      holds(run, rank, 0, stage, 0, 500);
  }
  return run;
}

// The head's gradient and weight are others on these ranks, but the same on all of them.
RunBuilder& part(RunBuilder& run, std::initializer_list<int> ranks) {
  for (const int rank : ranks) {
    holds(run, rank, 1, Stage::kGradient, 1, 600);
    holds(run, rank, 1, Stage::kWeight, 1, 700);
  }
  return run;
}

TEST(OnMesh, ShardsMayDifferAlongTheirDimension) {
  auto run = on_mesh(kSharded, kReplicated);
  EXPECT_THAT(diagnosed(shard(run)), IsEmpty());
}

TEST(OnMesh, OfADamagedMeshNothingFollows) {
  for (const char* mesh : {"[]", "{", R"({"mesh": [[], [0]]})", R"({"mesh": [[0, 1], [2]]})"}) {
    auto run = on_mesh(kReplicated, kReplicated);
    for (int rank = 0; rank < 4; ++rank) run.fact(rank, 1, "mesh", "0", mesh);
    EXPECT_THAT(diagnosed(run), IsEmpty()) << mesh;
  }
}

TEST(OnMesh, ShardsAreReplicasAlongTheOther) {
  auto run = on_mesh(kSharded, kReplicated);
  shard(run).differ(3, 0, Stage::kGradient, 1).differ(3, 0, Stage::kWeight, 1);
  const auto finding = found("DDP114", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("body.weight"));
  EXPECT_THAT(finding->message, HasSubstr("{0, 2}, {1, 3}"));
}

TEST(NotReducedOverDimension, NamesTheDimensionAndWhatTheOthersDid) {
  auto run = on_mesh(kSharded, kReplicated);
  const auto finding = found("DDP114", part(shard(run), {1, 3}));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kCertain);
  EXPECT_EQ(finding->first_step, 1);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_THAT(finding->message, HasSubstr("never reduced over tp {0, 1}, {2, 3}, only over dp {0, "
                                          "2}, {1, 3}"));
}

TEST(NotReducedOverDimension, NamesTheRanksThatAReductionLeavesOut) {
  auto run = on_mesh(kSharded, kReplicated);
  const auto finding = found("DDP114", part(shard(run), {3}));
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->ranks, ElementsAre(3));
  EXPECT_THAT(finding->message, HasSubstr("rank 3 has a different gradient"));
  EXPECT_EQ(finding->prescription.strategy, "");
}

TEST(NotReducedOverDimension, NamesOnlyTheGroupsThatDiffer) {
  auto run = on_mesh(kSharded, kSharded);
  shard(run).differ(3, 1, Stage::kGradient, 1).differ(3, 1, Stage::kWeight, 1);
  holds(run, 0, 1, Stage::kWeight, 0, 510);
  holds(run, 2, 1, Stage::kWeight, 0, 510);
  const auto finding = found("DDP114", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->message, HasSubstr("never reduced over dp {1, 3}"));
}

TEST(NotReducedOverDimension, LeavesAloneWhatTheOptimizerReduces) {
  auto run = on_mesh(kSharded, kReplicated);
  for (const int rank : {1, 3}) holds(run, rank, 1, Stage::kGradient, 1, 600);  // the weights agree
  EXPECT_THAT(diagnosed(shard(run)), IsEmpty());
}

TEST(NotReducedOverDimension, LeavesAloneGradientsThatArePartial) {
  auto run = on_mesh(kSharded, kReplicated);
  for (int rank = 0; rank < 4; ++rank)
    run.fact(rank, 1, "gradient placement", "head.weight",
             R"({"source": "DTensor", "mesh": 0, "placements": ["Replicate", "Partial"]})");
  for (const int rank : {1, 3}) holds(run, rank, 1, Stage::kGradient, 1, 600);
  EXPECT_THAT(diagnosed(shard(run)), IsEmpty());
}

TEST(NotReducedOverDimension, IsLikelyWhereNobodyDeclaredAnything) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  for (const int rank : {0, 1}) {
    run.fact(rank, 1, "activations", "forward", "true");
    run.fact(rank, 1, "activations", "backward", "true");
  }
  run.differ(1, 0, Stage::kWeight, 0).differ(1, 0, Stage::kWeightBefore, 1);
  EXPECT_THAT(diagnosed(run.differ(1, 0, Stage::kGradient, 1)), IsEmpty());
  const auto finding = found("DDP114", part(run, {1}));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
}

// Four ranks whose plain tensors the user states something of; the head's gradient was reduced over
// dp only. Nobody declares anything.
RunBuilder plain() {
  RunBuilder run(4, {"body.weight", "head.weight"}, 4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  part(shard(run), {1, 3});
  return run;
}

StatedPlacements stated(std::vector<std::pair<std::string, StatedKinds>> parameters) {
  return {{2, 2}, {"dp", "tp"}, std::move(parameters)};
}

TEST(StatedPlacement, MakesAFindingCertainAndNamesTheDimension) {
  auto run = plain();
  run.info().placement =
      stated({{"*.weight", {{"tp", "replicate"}}}, {"body.*", {{"tp", "shard"}}}});
  const auto finding = found("DDP114", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kCertain);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_THAT(finding->message, HasSubstr("never reduced over tp {0, 1}, {2, 3}, only over dp"));
}

TEST(StatedPlacement, OfAShardSilencesTheComparison) {
  auto run = plain();
  run.info().placement = stated({{"*.weight", {{"tp", "shard"}}}});
  EXPECT_THAT(diagnosed(run), IsEmpty());
  EXPECT_THAT(diagnosed(run.differ(2, 0, Stage::kWeight, 1).differ(2, 0, Stage::kGradient, 1)),
              testing::Not(IsEmpty()))
      << "along dp it is replicated all the same";
}

TEST(StatedPlacement, InTheProgramByDimensionOrProcessGroup) {
  for (const bool named : {true, false}) {
    auto run = plain();
    for (int rank = 0; rank < 4; ++rank) {
      run.fact(rank, 1, "mesh", "0", kMesh);
      const std::string along = named      ? R"("dimension": "tp")"
                                : rank < 2 ? R"("ranks": [1, 0])"
                                           : R"("ranks": [2, 3])";
      run.fact(rank, 1, "stated placement", "body.weight", "[{" + along + R"(, "kind": "shard"}])");
      run.fact(rank, 1, "stated placement", "head.weight",
               "[{" + along + R"(, "kind": "replicate"}])");
    }
    const auto finding = found("DDP114", run);
    ASSERT_TRUE(finding) << named;
    EXPECT_EQ(finding->certainty, Certainty::kCertain);
    EXPECT_THAT(finding->message, HasSubstr("never reduced over tp"));
    // The file outranks the program.
    run.info().placement = stated({{"head.weight", {{"tp", "shard"}}}});
    EXPECT_THAT(diagnosed(run), IsEmpty());
  }
}

TEST(StatedPlacement, JoinsTheProcessGroupsOfWrappers) {
  const auto wrapped = [] {
    RunBuilder run(4, {"body.weight", "head.weight"}, 4);
    for (int rank = 0; rank < 4; ++rank)
      run.fact(rank, 1, "wrapper 0", "ranks", rank % 2 == 0 ? "[0, 2]" : "[1, 3]");
    run.wrapper({}).tensors([](int, TensorInfo& tensor) { tensor.wrapper = 0; });
    return part(shard(run), {1, 3});
  };
  auto alone = wrapped();
  EXPECT_THAT(diagnosed(alone), IsEmpty()) << "two models, as far as anyone knows";
  auto run = wrapped();
  run.info().placement = stated({{"head.weight", {{"tp", "replicate"}}}});
  const auto finding = found("DDP114", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kCertain);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
}

TEST(StatedPlacement, GivesWayToWhatIsDeclaredAndSaysSo) {
  auto run = on_mesh(kSharded, kReplicated);
  run.info().placement = stated({{"*", {{"tp", "replicate"}}}});
  EXPECT_THAT(diagnosed(shard(run)), IsEmpty());
  EXPECT_THAT(
      run.build().notes,
      ElementsAre("not used: body.weight is stated to be replicated along tp, but declared "
                  "(Replicate, Shard(0)) by DTensor; the declaration counts, so correct one "
                  "of the two"));
}

TEST(StatedPlacement, SaysWhatNamesNothing) {
  auto run = plain();
  run.info().placement = stated({{"nrom.*", {{"tp", "replicate"}}}, {"head.*", {{"pp", "shard"}}}});
  EXPECT_THAT(run.build().notes, testing::UnorderedElementsAre(
                                     HasSubstr("\"nrom.*\" in [placement] matches no parameter"),
                                     HasSubstr("there are dp, tp")));
  run.info().placement.mesh_shape = {2, 4};
  run.info().placement.parameters = {{"head.*", {{"tp", "shard"}}}};
  EXPECT_THAT(
      run.build().notes,
      ElementsAre(HasSubstr("mesh_shape 2 x 4 in [placement] is of 8 ranks, and the job has 4"),
                  HasSubstr("no DeviceMesh of the program has names")));
}

TEST(NotReducedOverDimension, MeshesSideBySideThatBeginAlikeAreReplicas) {
  RunBuilder run(4, {"body.weight"}, 4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  for (int rank = 0; rank < 4; ++rank)
    run.fact(
        rank, 1, "placement", "body.weight",
        rank < 2
            ? R"json({"placements": ["Shard(0)"], "source": "fully_shard", "mesh": [0, 1]})json"
            : R"json({"placements": ["Shard(0)"], "source": "fully_shard", "mesh": [2, 3]})json");
  EXPECT_THAT(diagnosed(run), IsEmpty());
  run.differ(2, 0, Stage::kGradient, 1).differ(2, 0, Stage::kWeight, 1);
  const auto finding = found("DDP114", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
}

// The strategy and the operation that DDP114 proposes.
using Cure = std::pair<std::string, std::string>;
Cure cure(const RunBuilder& changed) {
  RunBuilder run = changed;
  const auto finding = found("DDP114", run);
  if (!finding) return {};
  const auto reduction = finding->evidence.find("reduction");
  return {finding->prescription.strategy,
          reduction == finding->evidence.end() ? "" : (*reduction)["operation"].get<std::string>()};
}

TEST(NotReducedOverDimension, ProposesASumWhereTheRanksShareALoss) {
  auto run = on_mesh(kSharded, kReplicated);
  part(shard(run), {1, 3});
  const auto losses = [&](double tp) {
    run.each_step([&](int rank, StepRecord& step) {
      step.loss = 1.0 / static_cast<double>(step.step) + rank / 2 + tp * (rank % 2);
    });
  };
  losses(0.0);
  EXPECT_EQ(cure(run), (Cure{"allreduce-dimension:tp", "sum"}));
  losses(0.1);
  EXPECT_EQ(cure(run).first, "") << "each has a loss of its own: a sum or a mean";
  losses(0.0);
  run.each_step([](int, StepRecord& step) {
    step.calls.push_back({"all_reduce", "sum", "float32", 1, "", "backward", "", "", 0, 1});
  });
  EXPECT_EQ(cure(run).first, "") << "backward summed the loss's gradient";
}

TEST(NotReducedOverDimension, ProposesWhatTheProgramDoesWithItsOtherGradients) {
  for (const auto& [operation, after] :
       {std::pair("sum", 4.0), std::pair("mean", 2.0), std::pair("", 1.0)}) {
    RunBuilder run(2, {"body.weight", "head.weight", "norm.weight"}, 4);
    run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
    run.info().placement = {{2}, {"tp"}, {{"*", {{"tp", "replicate"}}}}};
    part(run, {1});
    for (const int rank : {0, 1}) {
      const std::vector<double> own(5, rank == 0 ? 1.0 : 3.0);
      run.sample(rank, 2, Stage::kCollectiveGradient, own);
      run.sample(rank, 2, Stage::kGradient, std::vector<double>(5, after));
    }
    EXPECT_EQ(cure(run).second, operation);
  }
}

TEST(NotReducedOverDimension, ProposesAMeanForWhatFullyShardAverages) {
  auto run = on_mesh(kReplicated, kReplicated, "fully_shard");
  EXPECT_EQ(cure(part(run, {2, 3})), (Cure{"allreduce-dimension:dp", "mean"}));
}

TEST(StepWithoutSync, SeesThatFullyShardKeptTheGradients) {
  for (const char* over : {"shards", "replicas"}) {
    auto run = on_mesh(kSharded, kSharded);
    for (int rank = 0; rank < 4; ++rank) run.fact(rank, 1, "fully_shard", over, "false");
    const auto finding = found("DDP103", run);
    ASSERT_TRUE(finding) << over;
    EXPECT_EQ(finding->first_step, 1);
    for (int rank = 0; rank < 4; ++rank) run.fact(rank, 1, "fully_shard", over, "true");
    EXPECT_FALSE(found("DDP103", run)) << over;
  }
}

TEST(GradientScale, SeesTheDivideFactorOfFullyShard) {
  const auto with = [](const char* loss, const char* factors) {
    auto run = on_mesh(kSharded, kSharded, "fully_shard");
    for (int rank = 0; rank < 4; ++rank) {
      run.fact(rank, 1, "fully_shard", "factors", factors);
      run.fact(rank, 1, "loss", "factor", loss);
    }
    return found("DDP107", run);
  };
  const auto sum = with("1.0", R"([{"factor": 1.0, "ranks": 4}])");
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->certainty, Certainty::kLikely);
  EXPECT_THAT(sum->message, HasSubstr("4 times the mean"));
  EXPECT_FALSE(with("1.0", R"([{"factor": 4.0, "ranks": 4}])"));
  EXPECT_FALSE(with("0.01", R"([{"factor": 1.0, "ranks": 4}])")) << "a mean over all tokens";
  EXPECT_FALSE(with("1.0", "[]"));
}

TEST(GradientScale, IsNotCheckedWhereGradientsAreReducedIntoShards) {
  const auto reason = [](const char* rule, const char* source) {
    auto run = on_mesh(kReplicated, kSharded, source);
    const auto diagnosis = diagnose(run.build());
    const auto& all = diagnosis.not_checked;
    const auto one =
        std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.rule == rule; });
    return one == all.end() ? std::string() : one->reason;
  };
  for (const char* rule : {"DDP107", "DDP115"}) {
    EXPECT_THAT(reason(rule, "fully_shard"), HasSubstr("not seen before they are reduced"));
    EXPECT_THAT(reason(rule, "DTensor"),
                testing::Not(HasSubstr("not seen before they are reduced")));
  }
}

}  // namespace
}  // namespace ddp_doctor
