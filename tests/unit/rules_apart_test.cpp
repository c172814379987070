// SPDX-License-Identifier: BSD-3-Clause
// Programs whose ranks differ on purpose, and gradients that went to each other's parameters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/diagnose/averaging.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/value/report.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// ---- local SGD

// Two ranks that train apart, and average their weights in every third of nine steps.
RunBuilder local_sgd(const Collective& averaging) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 9);
  for (int step = 1; step <= 9; ++step) {
    for (int tensor : {0, 1}) {
      run.observe(1, tensor, Stage::kGradient, 100 + step, step, step);
      if (step % 3 != 0) run.observe(1, tensor, Stage::kWeight, 120 + step, step, step);
    }
    for (int rank : {0, 1}) {
      if (step % 3 == 0) run.step(rank, step).calls.push_back(averaging);
    }
  }
  return run;
}

Collective average(std::int64_t numel) {
  return {"all_reduce", "sum", "float32", numel, "", "outside", "", "train.py", 40, 1};
}

TEST(LocalSgd, IsNotTakenForReplicasThatDrift) {
  auto run = local_sgd(average(2));
  EXPECT_NE(why_apart(run.build()), nullptr);
  const auto diagnosis = diagnose(local_sgd(average(2)).build());
  EXPECT_THAT(codes_of(diagnosis.findings), IsEmpty());
  const auto skipped = std::find_if(diagnosis.not_checked.begin(), diagnosis.not_checked.end(),
                                    [](const auto& rule) { return rule.rule == "DDP301"; });
  ASSERT_NE(skipped, diagnosis.not_checked.end());
  EXPECT_THAT(skipped->reason, HasSubstr("local SGD"));
}

TEST(LocalSgd, MayAverageAfterTheStepHasEnded) {
  auto run = local_sgd(average(2));
  for (int step = 1; step <= 9; ++step) {
    for (int tensor : {0, 1}) {
      run.observe(1, tensor, Stage::kWeight, 120 + step, step, step);  // never equal after a step
      for (int rank : {0, 1}) {
        run.sample(rank, tensor, Stage::kWeight, {1.0 + rank}, step, step);
        run.sample(rank, tensor, Stage::kWeightBefore, {step % 3 == 0 ? 1.0 : 1.0 + rank}, step,
                   step);
      }
    }
  }
  EXPECT_NE(why_apart(run.build()), nullptr);
}

// Two optimizers, of an actor whose gradients are averaged and a critic whose are not: what is
// sampled of the critic's weights happens to be equal.
TEST(LocalSgd, IsNotAFewValuesThatNeverDiffered) {
  auto gradients = average(1);
  gradients.moment = "before-step";
  gradients.target = "gradient of actor.weight";
  RunBuilder run(2, {"actor.weight", "critic.weight"}, 8);
  for (int step = 2; step <= 8; ++step) {
    run.observe(1, 1, Stage::kGradient, 100 + step, step, step);
    run.observe(1, 1, Stage::kWeight, 120 + step, step, step);
    for (int rank : {0, 1}) {
      run.step(rank, step).optimizer = step % 2;
      run.step(rank, step).calls.push_back(gradients);
      for (const auto stage : {Stage::kWeight, Stage::kWeightBefore})
        run.sample(rank, 1, stage, {1.0}, step, step);
    }
  }
  EXPECT_EQ(why_apart(run.build()), nullptr);
}

// ---- gossip

// Two ranks that train apart, and before each update write into their weights; `moved`: towards
// each other, of their distance of 1.
RunBuilder gossip(const Collective& exchange, double moved) {
  RunBuilder run(2, {"body.weight"}, 9);
  for (int step = 1; step <= 9; ++step) {
    run.observe(1, 0, Stage::kGradient, 100 + step, step, step);
    run.observe(1, 0, Stage::kWeight, 120 + step, step, step);
    for (int rank : {0, 1}) {
      run.sample(rank, 0, Stage::kWeight, {1.0 + rank}, step, step);
      const double before = step == 1 ? 1.0 : 1.0 + rank + (rank == 0 ? moved : -moved);
      run.sample(rank, 0, Stage::kWeightBefore, {before}, step, step);
      run.step(rank, step).calls.push_back(exchange);
    }
  }
  return run;
}

Collective sent(std::int64_t numel) {
  return {"isend", "", "float32", numel, "", "before-step", "", "train.py", 40, 1};
}

TEST(Gossip, IsNotTakenForReplicasThatDrift) {
  const auto diagnosis = diagnose(gossip(sent(1), 0.3).build());
  EXPECT_THAT(codes_of(diagnosis.findings), IsEmpty());
  const auto skipped = std::find_if(diagnosis.not_checked.begin(), diagnosis.not_checked.end(),
                                    [](const auto& rule) { return rule.rule == "DDP301"; });
  ASSERT_NE(skipped, diagnosis.not_checked.end());
  EXPECT_THAT(skipped->reason, HasSubstr("gossip"));
}

TEST(Gossip, MovesWeightsTowardsThoseOfOthers) {
  EXPECT_EQ(why_apart(gossip(sent(1), 0.0).build()), nullptr);
  EXPECT_EQ(why_apart(gossip(sent(1), -0.3).build()), nullptr);
}

TEST(Gossip, SendsAsMuchAsItMixes) {
  EXPECT_EQ(why_apart(gossip(sent(0), 0.3).build()), nullptr);
  auto activations = sent(1);
  activations.moment = "forward";
  EXPECT_EQ(why_apart(gossip(activations, 0.3).build()), nullptr);
}

TEST(Gossip, MayReduceInGroupsThatChange) {
  auto run = gossip(average(1), 0.3);
  EXPECT_EQ(why_apart(run.build()), nullptr);
  for (int step = 1; step <= 9; ++step) {
    for (int rank : {0, 1})
      run.step(rank, step).calls.front().group = step % 2 == 0 ? "0,1" : "0,2";
  }
  EXPECT_NE(why_apart(run.build()), nullptr);
}

// ---- outer optimizers

TEST(LocalSgd, MayHaveAnOuterOptimizer) {
  auto gradients = average(2);
  gradients.moment = "before-step";
  gradients.target = "gradient of body.weight";
  auto run = local_sgd(gradients);
  for (int step : {3, 6, 9}) {
    for (int rank : {0, 1}) run.step(rank, step).optimizer = 1;
  }
  EXPECT_THAT(diagnosed(run), IsEmpty());
}

// A reload of a checkpoint brings weights together, too, and throws away what a rank has learned.
TEST(LocalSgd, IsNotWhatOnlyLooksLikeIt) {
  auto loads = average(2);
  loads.op = "broadcast";
  auto metric = average(1);
  auto gradients = average(2);
  gradients.moment = "before-step";
  for (const auto& call : {loads, metric, gradients})
    EXPECT_THAT(diagnosed(local_sgd(call)), Contains("DDP102")) << call.op << call.numel;
}

// ---- several models

// Ranks 0 and 1 train one, 2 and 3 another one.
RunBuilder ensemble(bool begin_apart) {
  RunBuilder run(4, {"body.weight", "head.weight"}, 3);
  run.wrapper({{"find_unused_parameters", "0"}});
  for (int rank = 0; rank < 4; ++rank) {
    run.fact(rank, 0, "wrapper 0", "ranks", rank < 2 ? "[0, 1]" : "[2, 3]");
    run.fact(rank, 1, "optimizer 0", "groups", rank < 2 ? R"([{"lr":0.1}])" : R"([{"lr":0.2}])");
    if (rank < 2) continue;
    for (int tensor : {0, 1}) {
      run.observe(rank, tensor, Stage::kGradient, 150);
      run.observe(rank, tensor, Stage::kWeight, 160, begin_apart ? 0 : 1);
    }
  }
  return run;
}

TEST(ReplicaSets, AreComparedWithinThemselves) {
  const Timeline timeline = ensemble(true).build();
  EXPECT_THAT(timeline.replicas, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(timeline.notes, Contains(HasSubstr("{0, 1}, {2, 3}")));
  EXPECT_THAT(codes_of(diagnose(timeline).findings), IsEmpty());
  for (const auto& step : timeline.steps) EXPECT_EQ(step.weight_drift, 0.0) << step.number;
  EXPECT_EQ(make_report({report_run(timeline, 0)}).health(), Health::kHealthy);
}

TEST(ReplicaSets, AreDiagnosedEach) {
  auto run = ensemble(true);
  run.differ(3, 1, Stage::kGradient, 2).differ(3, 1, Stage::kWeight, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(findings, Not(IsEmpty()));
  EXPECT_THAT(findings[0].ranks, ElementsAre(2, 3));
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].first_step, 2);
}

TEST(ReplicaSets, MayHaveParametersOfTheirOwn) {
  auto run = ensemble(true);
  for (int rank : {0, 1}) {
    run.record(rank).tensors.pop_back();
    for (auto& step : run.record(rank).steps) {
      std::erase_if(step.observations, [](const auto& seen) { return seen.tensor == 1; });
      std::erase_if(step.usages, [](const auto& usage) { return usage.tensor == 1; });
    }
  }
  const Timeline timeline = run.build();
  ASSERT_EQ(timeline.replica_sets().size(), 2U);
  EXPECT_THAT(timeline.replica_sets()[0].trainable(), ElementsAre(0));
  EXPECT_THAT(codes_of(diagnose(timeline).findings), IsEmpty());
}

TEST(ReplicaSets, AreOneWhereGroupsBeginAlike) {
  const Timeline timeline = ensemble(false).build();
  EXPECT_EQ(timeline.replicas.size(), 1U);
  EXPECT_THAT(codes_of(diagnose(timeline).findings), Contains("DDP112"));
}

// The stages of a pipeline: ranks 0 and 1 have the body, 2 and 3 the head.
RunBuilder pipeline() {
  RunBuilder run(4, {"0.weight"}, 3);
  run.tensors([](int rank, TensorInfo& tensor) { tensor.sizes = {rank < 2 ? 3 : 5}; });
  run.call({"send", "", "float32", 8, "", "forward", "", "train.py", 20, 1});
  for (int rank : {2, 3}) {
    run.observe(rank, 0, Stage::kGradient, 150);
    run.observe(rank, 0, Stage::kWeight, 160, 0);
  }
  return run;
}

TEST(ReplicaSets, AreTheStagesOfAPipeline) {
  const Timeline timeline = pipeline().build();
  EXPECT_THAT(timeline.replicas, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(codes_of(diagnose(timeline).findings), IsEmpty());
}

TEST(ReplicaSets, AreOneWhereAllRanksSynchronize) {
  auto run = pipeline();
  run.call({"all_reduce", "sum", "float32", 8, "", "before-step", "", "train.py", 31, 1});
  const Timeline timeline = run.build();
  EXPECT_EQ(timeline.replicas.size(), 1U);
  EXPECT_THAT(codes_of(diagnose(timeline).findings), Contains("DDP306"));
}

// ---- parameters of one rank

TEST(RankLocal, IsWhatDistributedDataParallelWasToldToIgnore) {
  RunBuilder run(2, {"body.weight", "adapter.weight"}, 3);
  run.wrapper({{"find_unused_parameters", "0"}});
  run.tensors([](int, TensorInfo& tensor) {
    tensor.wrapper = 0;
    if (tensor.id == 1) tensor.ddp_index.reset();
  });
  run.differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, 0);
  EXPECT_THAT(diagnosed(run), Not(IsEmpty()));
  for (int rank : {0, 1}) run.fact(rank, 0, "wrapper 0", "ignored", R"(["adapter.weight"])");
  EXPECT_THAT(diagnosed(run), IsEmpty());
  EXPECT_EQ(run.build().steps.back().weight_drift, 0.0);
}

TEST(RankLocal, IsASliceOfAFlatCopyThatNoModuleHolds) {
  const auto run_of = [](const char* name, int from_step) {
    RunBuilder run(2, {"body.weight", name}, 3);
    run.differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, from_step);
    return run;
  };
  EXPECT_THAT(diagnosed(run_of("parameter0", 0)), IsEmpty());
  EXPECT_THAT(diagnosed(run_of("head.weight", 0)), Contains("DDP302"));
  EXPECT_THAT(diagnosed(run_of("parameter0", 1)), Not(IsEmpty())) << "it begins alike";
}

TEST(RankLocal, IsAnExpertWhereTokensAreDealtOut) {
  const auto run_of = [](const char* op, const std::string& module, int from_step) {
    RunBuilder run(2, {"Trunk:weight", module + ":fc.weight", module + ":norm.weight"}, 3);
    run.tensors([](int, TensorInfo& tensor) {
      if (tensor.id > 0) tensor.ddp_index.reset();
      if (tensor.id == 0) tensor.wrapper = 0;
    });
    run.wrapper({{"find_unused_parameters", "0"}});
    run.call({op, "", "float32", 64, "", "forward", "", "train.py", 30, 1});
    for (int tensor : {1, 2}) run.differ(1, tensor, Stage::kGradient, 1);
    run.differ(1, 1, Stage::kWeight, from_step).differ(1, 2, Stage::kWeight, 1);
    return run;
  };
  EXPECT_THAT(diagnosed(run_of("all_to_all_single", "Layer", 0)), IsEmpty()) << "begins apart";
  EXPECT_THAT(diagnosed(run_of("all_to_all_single", "Layer", 1)), ElementsAre("DDP106"));
  EXPECT_THAT(diagnosed(run_of("all_to_all_single", "Expert", 1)), IsEmpty()) << "named so";
  EXPECT_THAT(diagnosed(run_of("all_gather", "Expert", 0)), Contains("DDP106"));
}

// ---- DDP111: one buffer, filled in different orders

TEST(RankDependentManualSync, SeesGradientsThatWentToAnotherParameter) {
  RunBuilder run(2, {"head.weight", "user.weight", "item.weight"}, 3);
  run.tensors([](int, TensorInfo& tensor) { tensor.sizes = {2}, tensor.numel = 2; });
  run.call({"all_reduce", "sum", "float32", 6, "", "before-step", "", "train.py", 31, 1});
  const auto set = [&](int rank, int user, int item) {
    run.observe(rank, 1, Stage::kGradient, user).observe(rank, 2, Stage::kGradient, item);
    for (auto& step : run.record(rank).steps) {
      for (auto& seen : step.observations) seen.digest.numel = 2;
    }
  };
  set(0, 91, 92);
  set(1, 92, 91);
  const auto finding = found("DDP111", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("user.weight", "item.weight"));
  EXPECT_EQ(finding->first_step, 1);
  EXPECT_EQ(finding->where->line, 31);
  set(1, 93, 94);
  EXPECT_FALSE(found("DDP111", run)) << "they only differ";
}

TEST(RankDependentManualSync, ComparesTheCallsOfOneProcessGroup) {
  const auto run_of = [](int calls_of_the_second_group) {
    RunBuilder run(4, {"body.weight", "head.weight"}, 3);
    run.trace("Bu Cg*2", 1);
    run.each_step([&](int rank, StepRecord& step) {
      const int calls = rank < 2 ? 2 : calls_of_the_second_group;
      for (int i = 0; i < calls; ++i)
        step.calls.push_back(
            {"all_reduce", "sum", "float32", 1, rank < 2 ? "0,1" : "2,3", "before-step",
             i == 0 ? "gradient of body.weight" : "gradient of head.weight", "train.py", 31, 1});
    });
    return run;
  };
  EXPECT_FALSE(found("DDP111", run_of(2)));
  EXPECT_FALSE(found("DDP111", run_of(1))) << "another group, other calls";
  auto run = run_of(2);
  for (int step = 1; step <= 3; ++step) run.step(3, step).calls.pop_back();
  EXPECT_FALSE(found("DDP111", run)) << "gradients and weights are the same all the same";
  run.differ(3, 1, Stage::kGradient, 1);
  ASSERT_TRUE(found("DDP111", run));
  run.trace("", 0);
  EXPECT_FALSE(found("DDP111", run)) << "a server of parameters";
}

// ---- ranks that do not make their steps together

// Two ranks with a reduction for each micro-batch; rank 1 makes step 2 after one fewer.
RunBuilder accumulates(int of_rank_1) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 4);
  run.wrapper({{"find_unused_parameters", "0"}});
  run.trace("F0+ B0+ F0+ B0+", 2);
  run.step(1, 2).trace = of_rank_1 == 1 ? "F0+ B0+" : "F0+ B0+ F0+ B0+";
  return run;
}

TEST(StepPairing, AStepAfterOtherReductionsIsNotTheSameStep) {
  const Timeline timeline = accumulates(1).build();
  ASSERT_TRUE(timeline.unpaired);
  EXPECT_EQ(timeline.unpaired->step, 2);
  EXPECT_EQ(timeline.steps.back().number, 1);
  const auto finding = found("DDP301", accumulates(1));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_THAT(finding->message, HasSubstr("rank 0 made step 2 after 4 reductions, rank 1 after 3"));
  EXPECT_FALSE(accumulates(2).build().unpaired);
}

TEST(StepPairing, TheFirstStepMayBeTheOne) {
  auto run = accumulates(2);
  run.step(1, 1).trace = "F0+ B0+";
  const auto finding = found("DDP301", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->first_step, 1);
}

TEST(StepPairing, IsLeftAloneWhereWrappersReduceWithinGroups) {
  auto run = accumulates(1);
  for (int rank : {0, 1}) run.fact(rank, 0, "wrapper 0", "ranks", fmt::format("[{}]", rank));
  EXPECT_FALSE(run.build().unpaired);
}

TEST(StepPairing, EndsWithAJoinThatRanksLeaveInDifferentSteps) {
  const auto run_of = [](int step_of_rank_1) {
    RunBuilder run(2, {"body.weight", "head.weight"}, 4);
    run.wrapper({{"find_unused_parameters", "0"}});
    run.fact(0, 3, "join", "ended", "1").fact(1, step_of_rank_1, "join", "ended", "1");
    run.differ(1, 0, Stage::kGradient, 3).differ(1, 0, Stage::kWeight, 3);
    return run;
  };
  EXPECT_THAT(diagnosed(run_of(3)), Not(IsEmpty())) << "they ended together";
  EXPECT_THAT(diagnosed(run_of(4)), IsEmpty());
  EXPECT_THAT(run_of(4).build().notes, Contains(HasSubstr("inside Join")));
}

}  // namespace
}  // namespace ddp_doctor
