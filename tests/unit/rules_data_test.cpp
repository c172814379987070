// SPDX-License-Identifier: BSD-3-Clause
// The rules about data and numerics (DDP401, DDP403, DDP404): a run on which each fires, and
// healthy runs that come near to it. DDP402 is in rules_test.cpp.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunBuilder healthy(int world_size = 2, int steps = 5) {
  return RunBuilder(world_size, {"body.weight", "head.weight"}, steps)
      .wrapper({{"find_unused_parameters", "0"}});
}

// ---- DDP401

// These ranks have the same local gradients in these steps.
RunBuilder& alike(RunBuilder& run, std::initializer_list<int> ranks, int from_step = 1,
                  int to_step = 1000) {
  for (int rank : ranks) {
    for (int tensor : {0, 1})
      run.observe(rank, tensor, Stage::kLocalGradient, 90 + tensor, from_step, to_step);
  }
  return run;
}

TEST(DuplicateData, NamesTheRanksThatComputeTheSame) {
  auto run = healthy(4);
  const auto findings = diagnose(alike(run, {1, 3}).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP401"));
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1, 3));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_EQ(findings[0].evidence["steps_alike"], 5);
}

TEST(DuplicateData, SeesItInAProgramThatNeverSynchronizes) {
  auto run = healthy();
  run.forget(Stage::kLocalGradient);  // what the optimizer got is what the backward left
  for (int rank = 0; rank < 2; ++rank) {
    for (auto& tensor : run.record(rank).tensors) tensor.ddp_index.reset();
  }
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP401"));
}

// An actor's and a critic's optimizer: both losses go backward, then both step.
TEST(DuplicateData, DoesNotCountStepsThatFollowAnothersBackward) {
  auto run = healthy(2, 10);
  alike(run, {0, 1});
  run.each_step([](int, StepRecord& step) {
    if (step.step % 2 == 1) return;
    step.optimizer = 1;
    step.backwards = 0;
    for (auto& usage : step.usages) usage.used = false;
    std::erase_if(step.observations,
                  [](const auto& seen) { return seen.stage == Stage::kLocalGradient; });
  });
  const auto codes = diagnosed(run);
  EXPECT_THAT(codes, Contains("DDP401"));
}

TEST(DuplicateData, StaysQuietWhereGradientsAreEqualOnce) {
  auto run = healthy();
  EXPECT_THAT(diagnosed(alike(run, {0, 1}, 5)), IsEmpty()) << "a padded batch at the end";
  EXPECT_THAT(diagnosed(alike(run, {0, 1}, 3)), IsEmpty()) << "three of five";
}

TEST(DuplicateData, StaysQuietWhereOneParameterHasTheSameGradient) {
  auto run = healthy();
  for (int rank : {0, 1}) run.observe(rank, 1, Stage::kLocalGradient, 90);
  EXPECT_THAT(diagnosed(run), IsEmpty()) << "a bias of the last layer";
}

TEST(DuplicateData, StaysQuietForGradientsThatAreAllZero) {
  auto run = healthy();
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kLocalGradient, 0);
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(DuplicateData, CannotTellFromTwoSteps) {
  auto run = healthy(2, 2);
  EXPECT_THAT(diagnosed(alike(run, {0, 1})), IsEmpty());
}

// Once an alarm: hooks had averaged the gradients when the first collective after the backward
// came.
TEST(DuplicateData, StaysQuietWhereTheProgramsOwnHooksSynchronize) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 5);
  run.forget(Stage::kLocalGradient);
  for (const char* moment : {"backward", "before-step"})
    run.call({"all_reduce", "sum", "float32", 1, "", moment, "", "train.py", 12, 1});
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) run.observe(rank, tensor, Stage::kCollectiveGradient, 60);
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// ---- DDP403

TEST(LossScaleDiffers, ShowsTheScales) {
  auto run = healthy();
  run.each_step([](int rank, StepRecord& step) {
    step.scale = step.step >= 3 && rank == 1 ? 512.0 : 1024.0;
  });
  run.differ(1, 0, Stage::kWeight, 3);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP403"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP301"));
  EXPECT_EQ(findings[0].first_step, 3);
  EXPECT_EQ(findings[0].evidence["scale_by_rank"], (std::vector<double>{1024.0, 512.0}));
  EXPECT_THAT(findings[0].message, HasSubstr("1024, 512"));
}

TEST(LossScaleDiffers, SeesThatOneRankSkipped) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) { step.scale = 1024.0; });
  run.step(1, 2).skipped = true;
  const auto finding = found("DDP403", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_EQ(finding->evidence["skipped_by_rank"], (std::vector<bool>{false, true}));
}

TEST(LossScaleDiffers, StaysQuietWhereAllSkipAndHalveTogether) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) {
    step.scale = step.step > 2 ? 512.0 : 1024.0;
    step.skipped = step.step == 2;
  });
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

TEST(LossScaleDiffers, StaysQuietWhereAScaleWasNotSeen) {
  auto run = healthy();
  run.each_step([](int rank, StepRecord& step) {
    if (rank == 0) step.scale = 1024.0;
  });
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// ---- DDP404

struct Sampling {
  RunBuilder run = healthy(2, 6);

  explicit Sampling(const std::string& shuffle = "true") {
    for (const char* sampler : {"sampler 0", "sampler 1"})
      run.fact(0, 1, sampler, "shuffle", shuffle);
  }
  // A pass of that sampler that begins before `step`.
  Sampling& pass(int sampler, int epoch, int step) {
    run.fact(0, step, fmt::format("sampler {}", sampler), "pass",
             fmt::format("[{},{},{}]", ++count, epoch, step - 1));
    return *this;
  }
  int count = 0;
};

TEST(SamplerOrderRepeats, CountsThePassesOfOneEpoch) {
  const auto findings =
      diagnose(Sampling().pass(0, 0, 1).pass(0, 0, 3).pass(0, 0, 5).run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP404"));
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_EQ(findings[0].first_step, 3);
  EXPECT_EQ(findings[0].evidence["repeated"], 2);
  EXPECT_EQ(findings[0].evidence["passes"], 3);
}

TEST(SamplerOrderRepeats, SeesSamplersMadeAnewForEachEpoch) {
  const auto run_of = [](const char* second_seed) {
    auto anew = Sampling().pass(0, 0, 1).pass(1, 0, 3).pass(2, 0, 5);
    for (int rank : {0, 1}) {
      for (const char* sampler : {"sampler 0", "sampler 1", "sampler 2"}) {
        const bool first = std::string(sampler) == "sampler 0";
        anew.run.fact(rank, 1, sampler, "shuffle", "true");
        anew.run.fact(rank, 1, sampler, "seed", first ? "0" : second_seed);
        anew.run.fact(rank, 1, sampler, "replicas", "[0,2]");
        anew.run.fact(rank, 1, sampler, "data", "[140001,64]");
        anew.run.record(rank).sites.push_back({sampler, 1, "train.py", 40, {}});
      }
    }
    return anew.run;
  };
  EXPECT_THAT(diagnosed(run_of("0")), ElementsAre("DDP404"));
  EXPECT_THAT(diagnosed(run_of("1")), IsEmpty());
}

TEST(SamplerOrderRepeats, StaysQuietWhereSetEpochIsCalled) {
  EXPECT_THAT(diagnosed(Sampling().pass(0, 0, 1).pass(0, 1, 3).pass(0, 2, 5).run), IsEmpty());
}

TEST(SamplerOrderRepeats, StaysQuietForAPassThatIsTheOnlyOne) {
  EXPECT_THAT(diagnosed(Sampling().pass(0, 0, 1).run), IsEmpty());
}

TEST(SamplerOrderRepeats, StaysQuietWithoutShuffle) {
  EXPECT_THAT(diagnosed(Sampling("false").pass(0, 0, 1).pass(0, 0, 3).run), IsEmpty());
}

// Once an alarm: between two passes of a validation sampler another one trains.
TEST(SamplerOrderRepeats, StaysQuietForValidation) {
  auto after = Sampling().pass(0, 0, 1).pass(1, 0, 3).pass(0, 1, 3).pass(1, 0, 5);
  EXPECT_THAT(diagnosed(after.run), IsEmpty()) << "after each epoch";
  auto within = Sampling().pass(0, 0, 1).pass(1, 0, 2).pass(1, 0, 3).pass(0, 1, 4).pass(1, 0, 6);
  EXPECT_THAT(diagnosed(within.run), IsEmpty()) << "in the middle of an epoch";
  auto before = Sampling().pass(1, 0, 1).pass(0, 0, 1).pass(1, 0, 3).pass(0, 1, 3).pass(1, 0, 5);
  EXPECT_THAT(diagnosed(before.run), IsEmpty()) << "a trial before training";
}

// A former false positive: a second pass over the training set, for evaluation.
TEST(SamplerOrderRepeats, StaysQuietForEvaluationOnTheTrainingSampler) {
  auto both = Sampling().pass(0, 0, 1).pass(0, 0, 3).pass(0, 1, 3).pass(0, 1, 5).pass(0, 2, 5);
  EXPECT_THAT(diagnosed(both.run), IsEmpty());
  auto last = Sampling().pass(0, 0, 1).pass(0, 1, 3).pass(0, 1, 7);
  EXPECT_THAT(diagnosed(last.run), IsEmpty()) << "after the last step";
}

TEST(SamplerOrderRepeats, SeesItInSpiteOfThem) {
  auto run = Sampling().pass(1, 0, 1).pass(0, 0, 1).pass(1, 0, 3).pass(0, 0, 3).pass(1, 0, 5);
  const auto finding = found("DDP404", run.run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence["repeated"], 1);
}

// ---- DDP401, parts of the data that overlap

// Each step gives each rank eight samples; `of` numbers the first of them.
RunBuilder dealt(const std::function<int(int rank, int step)>& of) {
  RunBuilder run(2, {"a.weight", "b.weight"}, 6);
  run.wrapper({}).tensors([](int, TensorInfo& tensor) { tensor.wrapper = 0; }).trace("F0+ B0+", 1);
  for (int rank = 0; rank < 2; ++rank) {
    run.record(rank).facts.push_back({0, "wrapper 0", "ranks", "[0,1]"});
    for (int step = 1; step <= 6; ++step) {
      nlohmann::json samples = nlohmann::json::array();
      for (int i = 0; i < 8; ++i) samples.push_back(of(rank, step) + i);
      run.record(rank).facts.push_back({step, "inputs", "samples", samples.dump()});
    }
  }
  return run;
}

TEST(DuplicateData, SeesPartsThatOverlap) {
  const auto finding =
      found("DDP401",
            dealt([](int rank, int step) { return step == 3 ? 1000 : 100 * rank + 10 * step; }));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_EQ(finding->evidence["samples_in_common"], 8);
  EXPECT_EQ(finding->evidence["samples_of_a_rank"], 48);
}

TEST(DuplicateData, StaysQuietForPartsThatAreDisjoint) {
  EXPECT_FALSE(found("DDP401", dealt([](int rank, int step) { return 100 * rank + 10 * step; })));
}

TEST(DuplicateData, StaysQuietWhereARankIsGivenSamplesAgain) {
  EXPECT_FALSE(
      found("DDP401", dealt([](int rank, int step) { return rank == 0 ? 10 * step : 10; })));
}

TEST(DuplicateData, StaysQuietForPassesThatTakeThePartsInTurns) {
  EXPECT_FALSE(found("DDP401", dealt([](int rank, int step) {
                       const int pass = (step - 1) / 3;
                       return 100 * ((rank + pass) % 2) + 10 * ((step - 1) % 3);
                     })));
}

}  // namespace
}  // namespace ddp_doctor
