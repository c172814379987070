// SPDX-License-Identifier: BSD-3-Clause
// The cause that a rule names, beyond the symptom: a run for each, and one beside it that looks
// like it and has another cause or none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/synchronized_runs.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string kind_of(const Finding& finding) { return finding.evidence.value("kind", ""); }

std::vector<double> ramp(double factor) {
  std::vector<double> values;
  for (int i = 1; i <= 8; ++i) values.push_back(factor * i);
  return values;
}

// One wrapper of both ranks, as the Python probe describes it.
RunBuilder wrapped() {
  auto run = healthy();
  for (int rank : {0, 1}) run.fact(rank, 1, "wrapper 0", "ranks", "[0,1]");
  run.tensors([](int, TensorInfo& tensor) { tensor.wrapper = 0; });
  return run;
}

// ---- DDP102: never wrapped

RunBuilder unwrapped() {
  RunBuilder run(2, {"body.weight", "head.weight"}, 3);
  run.trace("Bu", 1).tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  apart(run);
  for (int rank : {0, 1}) {
    run.record(rank).sites = {{"optimizer 0", 1, "train.py", 12, {}},
                              {"step 0", 1, "train.py", 20, {}}};
  }
  return run;
}

TEST(NeverWrapped, IsTheCauseOfEverythingThatDiffers) {
  auto run = unwrapped();
  run.differ(1, 0, Stage::kWeight, 0);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP102"));
  EXPECT_EQ(kind_of(findings[0]), "never-synchronized");
  EXPECT_THAT(findings[0].message, HasSubstr("not wrapped in DistributedDataParallel"));
  EXPECT_EQ(findings[0].where->line, 12);  // where the optimizer is constructed
  EXPECT_EQ(findings[0].prescription.strategy, "ddp");
  EXPECT_THAT(findings[0].prescription.fallbacks, ElementsAre("allreduce-flat+broadcast-init"));
  EXPECT_THAT(codes_of(findings[0].consequences),
              testing::UnorderedElementsAre("DDP301", "DDP302"));
}

TEST(NeverWrapped, IsNotSaidOfALoopThatReducesMoreThanAMetric) {
  for (const auto& [bytes, kind] : {std::pair(1, "never-synchronized"), std::pair(8, "")}) {
    auto run = unwrapped();
    run.each_step([bytes = bytes](int, StepRecord& step) {
      step.collectives = 1;
      step.collective_bytes = bytes;
    });
    const auto finding = found("DDP102", std::move(run));
    ASSERT_TRUE(finding) << bytes;
    EXPECT_EQ(kind_of(*finding), kind) << bytes;
  }
}

// ---- DDP102: a hook that reduces nothing

RunBuilder hooked(const std::string& reduces_to) {
  auto run = wrapped();
  apart(run);
  for (int rank : {0, 1}) {
    run.fact(rank, 1, "wrapper 0", "comm_hook", R"("my_hook")");
    run.record(rank).sites.push_back({"comm-hook 0", 1, "train.py", 9, {}});
    for (int tensor : {0, 1})
      run.observe(rank, tensor, Stage::kReducedGradient,
                  reduces_to == "itself" ? 50 + rank : 90 + rank);
  }
  return run;
}

TEST(CommunicationHook, IsNamedWhereItReturnsWhatItWasGiven) {
  const auto findings = diagnose(hooked("itself").build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP102"));
  EXPECT_EQ(kind_of(findings[0]), "comm-hook");
  EXPECT_THAT(findings[0].message, HasSubstr("my_hook"));
  EXPECT_EQ(findings[0].where->line, 9);
  EXPECT_EQ(kind_of(*found("DDP102", hooked("another value"))), "");
}

// ---- DDP302: loaded after wrapping

TEST(InitialWeights, NameTheLoadAfterTheWrappersBroadcast) {
  auto run = wrapped();
  run.differ(1, 0, Stage::kWeight, 0);
  run.fact(0, 1, "wrapper 0", "loaded", "1");
  run.record(0).sites.push_back({"load_state_dict 1", 1, "resume.py", 7, {}});
  const auto finding = found("DDP302", std::move(run));
  ASSERT_TRUE(finding);
  EXPECT_EQ(kind_of(*finding), "after-wrapping");
  EXPECT_THAT(finding->ranks, ElementsAre(0));
  EXPECT_EQ(finding->where->line, 7);
  EXPECT_THAT(finding->message, HasSubstr("on rank 0 only"));
}

TEST(InitialWeights, MayDifferInACopyThatRunsToo) {
  const auto with = [](std::vector<std::string> same) {
    auto run = wrapped();
    for (std::size_t rank = 0; rank < same.size(); ++rank)
      run.fact(static_cast<int>(rank), 1, "copy", "Teacher", same[rank]);
    return run;
  };
  const auto finding = found("DDP302", with({"true", "false"}));
  ASSERT_TRUE(finding);
  EXPECT_EQ(kind_of(*finding), "copy");
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_THAT(finding->message, HasSubstr("Teacher, which the program runs too"));
  EXPECT_FALSE(found("DDP302", with({"true", "true"})));
  EXPECT_FALSE(found("DDP302", with({"false", "false"})));  // each rank its own
  EXPECT_FALSE(found("DDP302", with({"true"})));            // the other rank did not run it
}

TEST(InitialWeights, AreNotBlamedOnALoadWhereNothingWasBroadcast) {
  for (const bool another_group : {false, true}) {
    auto run = wrapped();
    run.differ(1, 0, Stage::kWeight, 0);
    for (int rank : {0, 1}) {
      run.fact(rank, 1, "wrapper 0", "loaded", "1");
      if (another_group) {
        run.fact(rank, 1, "wrapper 0", "ranks", "[" + std::to_string(rank) + "]");
      } else {
        run.fact(rank, 1, "wrapper 0", "init_sync", "false");
      }
    }
    const auto finding = found("DDP302", std::move(run));
    ASSERT_TRUE(finding);
    EXPECT_EQ(kind_of(*finding), "");
  }
}

// ---- DDP307 before the weights of a copy

TEST(OptimizerStale, ExplainsThatTheCopiesThatItHoldsDiffer) {
  RunBuilder run(2, {"model.weight", "copy.weight"}, 3);
  run.wrapper({}).trace("F0+ B0+", 1);
  run.tensors([](int, TensorInfo& tensor) {
    if (tensor.id == 1) tensor.ddp_index.reset();
  });
  for (int rank : {0, 1}) run.unused(rank, 1);
  run.usage(0, [](int, Usage& usage) { usage.in_optimizer = false; });
  run.differ(1, 1, Stage::kWeight, 0);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP307"));
  EXPECT_THAT(codes_of(findings[0].consequences), testing::Contains("DDP302"));
}

// ---- DDP106 in the step in which the layer is created

TEST(ParametersOutside, BeginInTheStepInWhichTheyWereCreated) {
  RunBuilder run(2, {"body.weight", "late.weight"}, 4);
  run.wrapper({}).trace("F0+ B0+", 1);
  run.tensors([](int, TensorInfo& tensor) {
    tensor.wrapper = 0;
    if (tensor.id == 1) tensor.ddp_index.reset();
  });
  for (int rank : {0, 1}) {
    run.record(rank).sites.push_back({"created late.weight", 2, "train.py", 33, {}});
    for (int step : {1, 2}) {
      auto& usages = run.step(rank, step).usages;
      std::erase_if(usages, [](const Usage& usage) { return usage.tensor == 1; });
    }
    std::erase_if(run.step(rank, 1).observations,
                  [](const Observation& seen) { return seen.tensor == 1; });
  }
  // Clipping by a norm that contains it makes all gradients differ at once.
  for (int tensor : {0, 1})
    run.differ(1, tensor, Stage::kGradient, 2).differ(1, tensor, Stage::kWeight, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP106"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_EQ(findings[0].where->line, 33);
  EXPECT_THAT(findings[0].message, HasSubstr("created after"));
  EXPECT_THAT(codes_of(findings[0].consequences), testing::Contains("DDP102"));
}

// ---- DDP202: requires_grad, and a backward that reaches nothing

RunBuilder frozen_on(const std::vector<int>& ranks) {
  auto run = healthy();
  run.wrapper({{"find_unused_parameters", "1"}});
  for (int rank : ranks) run.unused(rank, 0, 2);
  run.usage(
      0,
      [&](int rank, Usage& usage) {
        usage.frozen = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      },
      2);
  // The reducer gives it the others' gradients.
  for (int rank : {0, 1}) run.observe(rank, 0, Stage::kGradient, 30, 2);
  return run;
}

TEST(RankDependentGraph, NamesAParameterFrozenOnOneRankAlthoughGradientsAgree) {
  const auto finding = found("DDP202", frozen_on({0}));
  ASSERT_TRUE(finding);
  EXPECT_EQ(kind_of(*finding), "requires_grad");
  EXPECT_THAT(finding->ranks, ElementsAre(0));
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_THAT(names_of(*finding), ElementsAre("body.weight"));
  EXPECT_EQ(finding->prescription.strategy, "");  // no flag of the wrapper cures it
}

TEST(RankDependentGraph, IsQuietWhereEveryRankFreezesOrOnlySkipsAParameter) {
  EXPECT_FALSE(found("DDP202", frozen_on({0, 1})));
  auto skipped = frozen_on({0});
  skipped.usage(0, [](int, Usage& usage) { usage.frozen = false; });
  EXPECT_FALSE(found("DDP202", std::move(skipped)));
}

// Gradients that the program assigns; those of rank 0 are zeros, which look like none.
TEST(RankDependentGraph, IsQuietWhereNoBackwardBroughtAnyRankAGradient) {
  auto run = wrapped();
  run.unused(0, 1).unused(1, 1).differ(1, 0, Stage::kGradient, 1);
  for (auto& usage : run.step(1, 1).usages) usage.assigned = usage.tensor == 1;
  EXPECT_FALSE(found("DDP202", run));
}

TEST(RankDependentGraph, NamesTheRankWhoseBackwardReachedNothing) {
  auto run = healthy();
  run.wrapper({{"find_unused_parameters", "1"}});
  for (int tensor : {0, 1}) run.unused(1, tensor, 3);
  run.raise(0, 3, "Connection closed by peer [127.0.0.1]:1");
  run.record(0).events[0].phase = "backward";
  const auto finding = found("DDP202", std::move(run));
  ASSERT_TRUE(finding);
  EXPECT_EQ(kind_of(*finding), "no-gradient");
  EXPECT_THAT(finding->ranks, ElementsAre(1));
  EXPECT_EQ(finding->first_step, 3);
  EXPECT_THAT(finding->parameters, IsEmpty());
}

// ---- DDP205 without an error

RunBuilder reentrant(int arrivals) {
  auto run = healthy();
  run.trace("F0+*2 R*2 B0+", 1);
  apart(run);
  run.usage(0, [&](int, Usage& usage) { usage.arrivals = arrivals; });
  run.usage(1, [&](int, Usage& usage) { usage.arrivals = arrivals; });
  return run;
}

TEST(MarkedReadyTwice, ExplainsGradientsThatArrivedAgainAfterTheReduction) {
  const auto findings = diagnose(reentrant(2).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP205"));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(codes_of(findings[0].consequences), testing::Contains("DDP102"));
  EXPECT_THAT(diagnosed(reentrant(1)), Not(testing::Contains("DDP205")));
}

// ---- DDP306: another order

RunBuilder in_order(bool same) {
  auto run = by_hand();
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  if (!same) {
    run.tensors([](int rank, TensorInfo& tensor) {
      if (rank == 1) tensor.name = tensor.name == "body.weight" ? "head.weight" : "body.weight";
    });
  }
  return run;
}

TEST(ModelMismatch, NamesTheOrderInWhichParametersWereRegistered) {
  auto run = in_order(false);
  apart(run);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].rule, "DDP306");
  EXPECT_EQ(kind_of(findings[0]), "order");
  EXPECT_THAT(findings[0].message,
              HasSubstr("parameter 0 is body.weight on rank 0 and head.weight"));
}

TEST(ModelMismatch, IsQuietAboutTheOrderWhereGradientsAgree) {
  EXPECT_FALSE(found("DDP306", in_order(false)));
  auto run = in_order(true);
  apart(run);
  EXPECT_FALSE(found("DDP306", std::move(run)));
}

// ---- DDP115

// Both ranks' local gradients, and what each gets back: the mean is ramp(1.5).
RunBuilder reduced_to(const std::vector<double>& first, const std::vector<double>& second) {
  auto run = healthy();
  apart(run);
  for (int rank : {0, 1}) {
    for (int tensor : {0, 1}) {
      run.sample(rank, tensor, Stage::kLocalGradient, ramp(1.0 + rank));
      run.sample(rank, tensor, Stage::kReducedGradient, rank == 0 ? first : second);
      run.observe(rank, tensor, Stage::kReducedGradient, 80 + rank);
    }
  }
  return run;
}

TEST(CorruptedReduction, NamesTheRankAndWhatItGot) {
  auto values = ramp(1.5);
  values[2] = values[3] = 0.0;
  const auto findings = diagnose(reduced_to(ramp(1.5), values).build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP115"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(findings[0].message,
              AllOf(HasSubstr("What rank 1 got back from the reduction is neither the rank's own "
                              "gradient nor the mean of all ranks"),
                    HasSubstr("12 of 48 sampled"), HasSubstr("(zeros)")));
  EXPECT_THAT(findings[0].prescription.text, HasSubstr("Check the hardware of rank 1"));
  EXPECT_THAT(codes_of(findings[0].consequences), testing::Contains("DDP102"));
}

TEST(CorruptedReduction, IsNotARankThatKeptItsOwnGradientOrAScale) {
  EXPECT_FALSE(found("DDP115", reduced_to(ramp(1.5), ramp(2.0))));          // its own
  EXPECT_FALSE(found("DDP115", reduced_to(ramp(3.0), ramp(3.1))));          // nobody has the mean
  EXPECT_FALSE(found("DDP115", reduced_to(ramp(1.5), ramp(1.5 * 1.004))));  // compressed
}

// ---- DDP107: a rank's own normaliser

RunBuilder summed(double first, double second) {
  auto run = by_hand();
  run.call(all_reduce("gradient of body.weight")).call(all_reduce("gradient of head.weight"));
  for (int rank : {0, 1}) {
    run.sample(rank, 0, Stage::kLocalGradient, ramp(1.0 + rank));
    run.sample(rank, 0, Stage::kGradient, ramp(3.0));
    run.fact(rank, 1, "loss", "factor", std::to_string(rank == 0 ? first : second));
  }
  return run;
}

TEST(GradientScale, IsASumOfLocalMeansWhereEachRankDividesByItsOwnCount) {
  EXPECT_TRUE(found("DDP107", summed(1.0 / 44, 1.0 / 12)));
  EXPECT_FALSE(found("DDP107", summed(1.0 / 56, 1.0 / 56)));  // the total of all ranks
  EXPECT_FALSE(found("DDP107", summed(0.75, 0.25)));          // weights
}

// ---- DDP401: inputs and samplers

RunBuilder given(const std::function<int(int rank, int step)>& checksum) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 6);
  run.wrapper({}).trace("F0+ B0+", 1);
  for (int rank : {0, 1}) {
    run.fact(rank, 1, "wrapper 0", "ranks", "[0,1]");
    for (int step = 1; step <= 6; ++step)
      run.fact(rank, step, "inputs", "checksum", std::to_string(checksum(rank, step)));
  }
  return run;
}

TEST(DuplicateData, IsSeenInTheInputsThoughGradientsDiffer) {
  const auto finding = found("DDP401", given([](int, int step) { return step; }));
  ASSERT_TRUE(finding);
  EXPECT_EQ(kind_of(*finding), "inputs");
  EXPECT_EQ(finding->certainty, Certainty::kLikely);
  EXPECT_THAT(finding->ranks, ElementsAre(0, 1));
}

TEST(DuplicateData, IsNotABatchThatNeverChangesNorRanksThatComputeTogether) {
  EXPECT_FALSE(found("DDP401", given([](int, int) { return 7; })));
  EXPECT_FALSE(found("DDP401", given([](int rank, int step) { return 10 * rank + step; })));
  auto together = given([](int, int step) { return step; });
  auto call = all_reduce("");
  call.moment = "forward";
  together.call(call);
  EXPECT_FALSE(found("DDP401", std::move(together)));
}

RunBuilder sampled(const std::string& key, const std::string& first, const std::string& second,
                   int replicas = 2) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 6);
  run.wrapper({}).trace("F0+ B0+", 1);
  for (int rank : {0, 1}) {
    run.fact(rank, 1, "wrapper 0", "ranks", "[0,1]");
    run.record(rank).sites.push_back({"sampler 0", 1, "train.py", 15, {}});
    std::map<std::string, std::string> facts = {
        {"shuffle", "true"},
        {"seed", "0"},
        {"replicas", "[" + std::to_string(rank) + "," + std::to_string(replicas) + "]"},
        {"pass", "[1,0,0]"}};
    facts[key] = rank == 0 ? first : second;
    for (const auto& [name, value] : facts) run.fact(rank, 1, "sampler 0", name, value);
  }
  return run;
}

TEST(DuplicateData, NamesWhatDiffersInTheSamplers) {
  for (const auto& [key, first, second, what] :
       {std::tuple("seed", "0", "1", "seed"), std::tuple("pass", "[1,0,0]", "[1,3,0]", "epoch"),
        std::tuple("replicas", "[0,2]", "[1,3]", "num_replicas")}) {
    const auto finding = found("DDP401", sampled(key, first, second));
    ASSERT_TRUE(finding) << key;
    EXPECT_EQ(finding->evidence["differs"], what);
    EXPECT_EQ(finding->where->line, 15);
  }
  EXPECT_FALSE(found("DDP401", sampled("seed", "0", "0")));
  EXPECT_FALSE(found("DDP401", sampled("seed", "0", "1", 1)));  // each rank has its own data
}

}  // namespace
}  // namespace ddp_doctor
