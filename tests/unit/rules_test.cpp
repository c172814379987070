// SPDX-License-Identifier: BSD-3-Clause
// Every rule: a run on which it fires, and one on which it must stay quiet.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "lib/diagnose/diagnose.h"
#include "lib/diagnose/rule.h"
#include "lib/report/value/report.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kUnfinished[] =
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates ...";

std::vector<std::string> codes(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const auto& finding : findings) codes.push_back(finding.rule);
  return codes;
}

std::vector<std::string> names(const Finding& finding) {
  std::vector<std::string> names;
  for (const auto& parameter : finding.parameters) names.push_back(parameter.name);
  return names;
}

RunBuilder healthy() {
  return RunBuilder(2, {"orphan.weight", "head.weight"}, 3)
      .wrapper({{"find_unused_parameters", "0"}});
}

// The effect of an unused parameter with DistributedDataParallel's defaults.
RunBuilder unfinished() {
  RunBuilder run = healthy();
  run.unused(0, 0).unused(1, 0).differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, 1);
  return run.raise(0, 2, kUnfinished).raise(1, 2, kUnfinished);
}

TEST(Rules, AreOrderedByCodeAndNamedOnce) {
  std::string last;
  for (const Rule* rule : all_rules()) {
    EXPECT_LT(last, rule->code);
    EXPECT_EQ(find_rule(rule->code), rule);
    EXPECT_EQ(find_rule(rule->name), rule);
    last = rule->code;
  }
}

TEST(Rules, FindNothingInAHealthyRun) {
  const auto diagnosis =
      diagnose(RunBuilder(2, {"a", "b"}, 5).wrapper({{"find_unused_parameters", "0"}}).build());
  EXPECT_THAT(diagnosis.findings, IsEmpty());
  EXPECT_THAT(diagnosis.not_checked, IsEmpty());
  const auto rules = all_rules();
  EXPECT_THAT(diagnosis.checked,
              SizeIs(std::count_if(rules.begin(), rules.end(),
                                   [](const Rule* rule) { return rule->check != nullptr; })));
}

TEST(Rules, SayWhatOneRankCannotShow) {
  const auto diagnosis = diagnose(RunBuilder(1, {"w"}, 2).wrapper({}).build());
  EXPECT_THAT(diagnosis.findings, IsEmpty());
  ASSERT_THAT(diagnosis.not_checked, testing::Not(IsEmpty()));
  EXPECT_THAT(diagnosis.not_checked.front().reason, HasSubstr("only one rank"));
}

TEST(WrapperBypassed, ExplainsGradientsAndWeightsThatDiffer) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) {
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
  run.differ(1, 0, Stage::kGradient, 1).differ(1, 1, Stage::kGradient, 1);
  run.differ(1, 0, Stage::kWeight, 1);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP101"));
  EXPECT_THAT(codes(findings[0].consequences), ElementsAre("DDP102", "DDP301"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 1);
}

TEST(WrapperBypassed, StaysQuietWhereGradientsAreAveragedByHand) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) {
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
    step.collectives = 2;
  });
  EXPECT_THAT(diagnose(run.build()).findings, IsEmpty());
}

TEST(WrapperBypassed, IsFoundWhereOnlyAMetricIsReduced) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) {
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
  run.call({"all_reduce", "sum", "float32", 1, "", "before-step", "", "train.py", 31, 1});
  for (int tensor : {0, 1}) run.differ(1, tensor, Stage::kGradient, 1);
  EXPECT_THAT(codes(diagnose(run.build()).findings), ElementsAre("DDP101"));
}

// Once an alarm: wrapper.forward(x), which no hook saw.
TEST(WrapperBypassed, StaysQuietWhereSomethingMadeTheGradientsEqual) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) {
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
  EXPECT_THAT(diagnose(run.build()).findings, IsEmpty());
}

TEST(WrapperBypassed, StaysQuietForAForwardBesideTheOneThroughTheWrapper) {
  auto run = healthy();
  run.each_step([](int, StepRecord& step) { step.forwards_around_wrapper = 1; });
  EXPECT_THAT(diagnose(run.build()).findings, IsEmpty());
}

TEST(GradientsOutOfSync, NamesTheParameterAndTheFirstStep) {
  auto run = healthy();
  run.differ(1, 0, Stage::kGradient, 2).differ(1, 1, Stage::kGradient, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP102"));
  EXPECT_THAT(names(findings[0]), IsEmpty());  // all of them
  EXPECT_EQ(findings[0].first_step, 2);
}

// Ranks that count steps otherwise are sampled at other steps, and only one of them has its last
// step in the middle of the other's sampling.
TEST(GradientsOutOfSync, ComparesNothingWithARankWhoseWeightsAloneAreSeen) {
  RunBuilder run(2, {"fc1.weight", "fc2.weight"}, 3);
  auto& last = run.step(0, 3);
  last.usages.clear();
  std::erase_if(last.observations,
                [](const Observation& seen) { return seen.stage != Stage::kWeight; });
  const Timeline timeline = run.build();
  EXPECT_THAT(diagnose(timeline).findings, IsEmpty());
  EXPECT_FALSE(report_run(timeline, 0).steps_table.back().synced);
}

TEST(GradientsOutOfSync, CountsAGradientThatOnlySomeRanksHave) {
  RunBuilder run(2, {"a", "b"}, 2);
  run.unused(1, 0);
  EXPECT_THAT(codes(diagnose(run.build()).findings), Contains("DDP202"));
}

TEST(UnusedParameters, AreTheRootOfAnUnfinishedReduction) {
  const auto findings = diagnose(unfinished().build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP201"));
  EXPECT_THAT(codes(findings[0].consequences),
              testing::UnorderedElementsAre("DDP102", "DDP301", "DDP504"));
  EXPECT_THAT(names(findings[0]), ElementsAre("orphan.weight"));
  EXPECT_EQ(findings[0].parameters[0].index, 0);
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_TRUE(findings[0].evidence["reasons"].contains("never called"));
}

TEST(UnusedParameters, TellCalledFromNeverCalled) {
  for (const auto& [reached, in_output, frozen, reason] :
       {std::tuple(true, true, false, "called, but its output is not in the loss"),
        std::tuple(true, false, false, "called, but detached from the output"),
        std::tuple(false, false, true, "frozen")}) {
    auto run = unfinished();
    for (int rank : {0, 1}) {
      auto& usage = run.step(rank, 1).usages[0];
      usage.reached = reached;
      usage.in_output = in_output;
      usage.frozen = frozen;
    }
    const auto findings = diagnose(run.build()).findings;
    ASSERT_THAT(codes(findings), ElementsAre("DDP201"));
    EXPECT_TRUE(findings[0].evidence["reasons"].contains(reason)) << findings[0].evidence;
  }
}

TEST(UnusedParameters, AreNotPrescribedAStaticGraphWhereCheckpointsAreReentrant) {
  auto plain = unfinished();
  EXPECT_EQ(diagnose(plain.build()).findings.at(0).prescription.strategy, "ddp-static-graph");
  auto reentrant = unfinished();
  reentrant.each_step([](int, StepRecord& step) { step.trace = "F0+ R B0+"; });
  const auto cure = diagnose(reentrant.build()).findings.at(0).prescription;
  EXPECT_EQ(cure.strategy, "ddp-find-unused");
  EXPECT_TRUE(cure.alternatives.empty());
}

TEST(UnusedParameters, AreNotPrescribedAStaticGraphWhereBackwardsRunUnderNoSync) {
  auto run = unfinished();
  run.each_step([](int, StepRecord& step) {
    step.backwards = 4;
    step.unsynchronized_backwards = 3;
  });
  const auto cure = diagnose(run.build()).findings.at(0).prescription;
  EXPECT_EQ(cure.strategy, "ddp-find-unused");
  EXPECT_TRUE(cure.alternatives.empty());
}

TEST(UnusedParameters, MayBeOnesThatTheReducerDoesNotFind) {
  RunBuilder run(2, {"bias", "weight"}, 3);
  run.wrapper({{"find_unused_parameters", "1"}}).unused(0, 0).unused(1, 0);
  run.differ(1, 1, Stage::kGradient, 1).differ(1, 1, Stage::kWeight, 1);
  const auto error = fmt::format(
      "{} Parameter indices which did not receive grad for rank 0: 0  In addition", kUnfinished);
  run.raise(0, 2, error).raise(1, 2, error);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP201"));
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_THAT(findings[0].prescription.text, HasSubstr("=True does not find it"));
  EXPECT_EQ(findings[0].prescription.strategy, "allreduce-flat");
}

TEST(UnusedParameters, AreAdviceWhereNoBackwardIsReduced) {
  RunBuilder run(2, {"orphan.weight", "head.weight"}, 3);
  run.wrapper({{"find_unused_parameters", "0"}}).unused(0, 0).unused(1, 0);
  run.each_step([](int, StepRecord& step) { step.unsynchronized_backwards = step.backwards; });
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), Contains("DDP201"));
  EXPECT_EQ(findings[0].severity, Severity::kAdvice);
}

TEST(UnusedParameters, AreAdviceWhereTheWrapperExpectsThem) {
  for (const char* option : {"find_unused_parameters", "static_graph"}) {
    RunBuilder run(2, {"orphan.weight", "head.weight"}, 3);
    run.wrapper({{option, "1"}}).unused(0, 0).unused(1, 0);
    for (const auto& finding : diagnose(run.build()).findings)
      EXPECT_EQ(finding.severity, Severity::kAdvice) << finding.rule;
  }
}

TEST(UnusedParameters, StayQuietWhereOneStepUsesThem) {
  auto run = healthy();
  run.unused(0, 0, 2, 2).unused(1, 0, 2, 2);
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(Contains("DDP201")));
}

TEST(UnusedParameters, AreNamedFromTheErrorWhereTheStepWasNotRecorded) {
  auto run = healthy();
  const std::string text =
      std::string(kUnfinished) + "\nParameter indices which did not receive grad for rank 0: 1\n";
  run.raise(0, 7, text).raise(1, 7, text);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP201"));
  EXPECT_EQ(findings[0].first_step, 6);
  EXPECT_THAT(names(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].prescription.strategy, "ddp-find-unused");
}

TEST(RankDependentGraph, ListsWhatEachRankLeftOut) {
  auto run = healthy();
  run.unused(0, 0).unused(1, 1).raise(0, 2, kUnfinished).raise(1, 2, kUnfinished);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP202"));
  EXPECT_THAT(names(findings[0]), ElementsAre("orphan.weight", "head.weight"));
  EXPECT_EQ(findings[0].evidence["unused_by_rank"]["0"][0], "orphan.weight");
  EXPECT_EQ(findings[0].evidence["unused_by_rank"]["1"][0], "head.weight");
}

// find_unused_parameters=True would turn the error into a silent bias.
TEST(RankDependentGraph, PrescribesNoStrategyForALayerFrozenOnOneRank) {
  auto run = healthy();
  run.unused(1, 0).raise(0, 2, kUnfinished).raise(1, 2, kUnfinished);
  run.usage(0, [](int rank, Usage& usage) { usage.frozen = rank == 1; });
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP202"));
  const auto& prescription = findings[0].prescription;
  EXPECT_EQ(prescription.strategy, "");
  EXPECT_THAT(prescription.fallbacks, testing::IsEmpty());
  EXPECT_THAT(prescription.text, testing::StartsWith("Freeze the same parameters on every rank"));
}

TEST(RankDependentGraph, StaysQuietWhereGradientsAgreeAllTheSame) {
  RunBuilder run(2, {"a", "b"}, 3);
  run.wrapper({{"find_unused_parameters", "1"}});
  run.each_step(
      [](int rank, StepRecord& step) { step.usages[static_cast<std::size_t>(rank)].used = false; });
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(Contains("DDP202")));
}

TEST(RankDependentGraph, IsSeenInTheFirstStepIfOnlyOneSideCompletedIt) {
  auto run = healthy();
  run.unused(1, 0, 1, 1).raise(1, 2, kUnfinished);
  run.raise(0, 1, "[../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1234",
            5);
  run.record(0).events[0].phase = "backward";
  EXPECT_THAT(codes(diagnose(run.build()).findings), ElementsAre("DDP202"));
}

TEST(RankDependentGraph, IsSeenInAStepThatOnlyOneSideCompleted) {
  auto run = healthy();
  run.unused(1, 0, 2, 2).raise(1, 3, kUnfinished);
  run.raise(0, 2, "[../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1234",
            5);
  run.record(0).events[0].phase = "backward";
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP202"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(names(findings[0]), ElementsAre("orphan.weight"));
  EXPECT_THAT(codes(findings[0].consequences), ElementsAre("DDP504"));
}

TEST(RankDependentGraph, StaysQuietWhereARankJustCrashes) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.wrapper({{"find_unused_parameters", "1"}});
  run.each_step(
      [](int rank, StepRecord& step) { step.usages[static_cast<std::size_t>(rank)].used = false; });
  run.raise(1, 4, "corrupt sample").raise(0, 4, "Connection closed by peer", 5);
  EXPECT_THAT(codes(diagnose(run.build()).findings), ElementsAre("DDP504"));
}

TEST(NeedlessFindUnused, FiresWhereEverythingIsUsed) {
  RunBuilder run(2, {"a", "b"}, 3);
  run.wrapper({{"find_unused_parameters", "1"}});
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP204"));
  EXPECT_EQ(findings[0].severity, Severity::kAdvice);
}

TEST(NeedlessFindUnused, StaysQuietWhereOneRankLeavesSomethingOutOnce) {
  RunBuilder run(2, {"a", "b"}, 3);
  run.wrapper({{"find_unused_parameters", "1"}});
  run.step(1, 3).usages[0].used = false;
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(Contains("DDP204")));
}

TEST(NeedlessFindUnused, StaysQuietWhereParametersWereReplaced) {
  RunBuilder run(2, {"a", "b"}, 3);
  run.wrapper({{"find_unused_parameters", "1"}});
  run.usage(0, [](int, Usage& usage) { usage.replaced = true; });
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(Contains("DDP204")))
      << "the reducer waits for the tensors that they replaced";
}

TEST(NeedlessFindUnused, IsNotDecidedWhereNoForwardWentThroughTheWrapper) {
  RunBuilder run(2, {"a", "b"}, 3);
  run.wrapper({{"find_unused_parameters", "1"}});
  run.each_step([](int, StepRecord& step) {
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(Contains("DDP204")));
}

TEST(StaticGraphViolated, SeesTheUsedSetChange) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.wrapper({{"static_graph", "1"}}).unused(0, 0, 1, 2).unused(1, 0, 1, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), Contains("DDP206"));
  EXPECT_EQ(findings[0].first_step, 3);
  EXPECT_THAT(names(findings[0]), ElementsAre("a"));
}

TEST(StaticGraphViolated, StaysQuietWhereTheUnusedSetStays) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.wrapper({{"static_graph", "1"}}).unused(0, 0).unused(1, 0);
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(Contains("DDP206")));
}

TEST(StaticGraphApplicable, FiresOnAConstantUnusedSet) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.wrapper({{"find_unused_parameters", "1"}}).unused(0, 0).unused(1, 0);
  EXPECT_THAT(codes(diagnose(run.build()).findings), Contains("DDP207"));
}

TEST(StaticGraphApplicable, StaysQuietWhereItWouldFail) {
  const auto advised = [](const std::function<void(int, StepRecord&)>& change) {
    RunBuilder run(2, {"a", "b"}, 4);
    run.wrapper({{"find_unused_parameters", "1"}}).unused(0, 0).unused(1, 0).each_step(change);
    const auto findings = codes(diagnose(run.build()).findings);
    return std::find(findings.begin(), findings.end(), "DDP207") != findings.end();
  };
  EXPECT_TRUE(advised([](int, StepRecord&) {}));
  EXPECT_FALSE(advised([](int, StepRecord& step) { step.usages[0].in_output = true; }))
      << "an output outside the loss";
  EXPECT_FALSE(advised([](int, StepRecord& step) { step.unsynchronized_backwards = 1; }))
      << "no_sync";
  EXPECT_FALSE(advised([](int, StepRecord& step) { step.usages[0].used = step.step > 2; }))
      << "a set that changes";
}

TEST(WeightsDrift, StandsAloneWhereNothingElseExplainsIt) {
  auto run = healthy();
  run.differ(1, 0, Stage::kWeight, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP301"));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_THAT(names(findings[0]), ElementsAre("orphan.weight"));
  EXPECT_FALSE(findings[0].evidence.contains("never_updated_on"));
}

TEST(WeightsDrift, NamesTheRankThatTheUpdateOfItsOwnerNeverReached) {
  auto run = healthy();
  run.observe(1, 0, Stage::kWeight, 10);  // as before training
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP301"));
  EXPECT_EQ(findings[0].evidence["never_updated_on"], std::vector{1});
  EXPECT_THAT(findings[0].message,
              testing::HasSubstr("On rank 1 they are still what they were before step 1."));
}

TEST(InitialWeightsDiffer, ExplainsTheDriftThatFollows) {
  auto run = healthy();
  run.differ(1, 0, Stage::kWeight, 0);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP302"));
  EXPECT_THAT(codes(findings[0].consequences), ElementsAre("DDP301"));
}

TEST(NonfiniteGradient, NamesTheRankWhereItBegan) {
  auto run = healthy();
  const auto spoil = [&](int rank, int step, int tensor, Stage stage) {
    for (auto& seen : run.step(rank, step).observations) {
      if (seen.tensor == tensor && seen.stage == stage) seen.digest.nonfinite = 1;
    }
  };
  spoil(1, 2, 1, Stage::kLocalGradient);
  EXPECT_THAT(diagnose(RunBuilder(run).build()).findings, IsEmpty())
      << "a scaler would skip this step";
  for (int rank : {0, 1}) {
    spoil(rank, 2, 1, Stage::kGradient);
    spoil(rank, 2, 1, Stage::kWeight);
  }
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP402"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_THAT(names(findings[0]), ElementsAre("head.weight"));

  spoil(0, 1, 1, Stage::kLocalGradient);
  EXPECT_EQ(diagnose(RunBuilder(run).build()).findings[0].first_step, 1);
  for (int rank : {0, 1}) run.step(rank, 1).skipped = true;
  EXPECT_EQ(diagnose(run.build()).findings[0].first_step, 2) << "a scaler skipped the first step";
}

TEST(RankCrashed, BlamesTheFirstToFallNotThosePeersLost) {
  auto run = healthy();
  run.raise(0, 2, "[../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1234",
            5);
  run.raise(1, 2, "CUDA out of memory", 9);  // reported later, and yet the first
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].first_step, 2);
  EXPECT_THAT(findings[0].message, HasSubstr("CUDA out of memory"));
}

constexpr char kPeerLost[] =
    "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:1234";

TEST(RankCrashed, CountsAnExceptionThatTheProgramCaughtBeforeItFailed) {
  auto run = healthy();
  run.raise(0, 3, kPeerLost, 5);
  run.raise(1, 3, "Traceback (most recent call last):\n  ...\nValueError: bad sample", 9);
  for (const int rank : {0, 1}) run.record(rank).events.front().kind = "caught";
  EXPECT_THAT(codes(diagnose(run.build()).findings), testing::Not(testing::Contains("DDP504")));
  run.info().exits = {{0, RankExit::Kind::kSignaled, SIGTERM, 0, 3, "", ""},
                      {1, RankExit::Kind::kExited, 1, 0, 3, "", "failed, see the log"}};
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].message, HasSubstr("ValueError: bad sample"));
}

TEST(RankCrashed, StaysQuietWhereTheProgramCaughtAnExceptionAndTrainedOn) {
  auto run = healthy();
  run.record(1).events = {{2, 5, "caught", "forward", "RuntimeError: CUDA out of memory"}};
  for (const int code : {0, 1}) {  // it may fail later, of something else
    run.info().exits = {{0, RankExit::Kind::kExited, 0, 0, 0, "", ""},
                        {1, RankExit::Kind::kExited, code, 0, 0, "", "ValueError: unrelated"}};
    for (const auto& finding : diagnose(run.build()).findings)
      EXPECT_THAT(finding.message, testing::Not(HasSubstr("out of memory")));
  }
}

TEST(RankCrashed, NamesTheRootOfAChain) {
  const std::string cause =
      "\nThe above exception was the direct cause of the following exception:\n\n";
  const std::string context =
      "\nDuring handling of the above exception, another exception occurred:\n\n";
  const std::string trace = "Traceback (most recent call last):\n  File ...\n";
  auto run = healthy();
  // Its own failure, although it then lost its peer in a `finally`.
  run.raise(0, 2, trace + "KeyError: 'label'\n" + context + trace + kPeerLost, 9);
  // It only lost its peer, whatever it made of that.
  run.raise(1, 2, trace + kPeerLost + "\n" + cause + trace + "app.TrainingError: node down\n", 5);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  EXPECT_THAT(findings[0].message, HasSubstr("KeyError: 'label'; it became RuntimeError: "));
}

TEST(RankCrashed, KnowsALostPeerByTheLastWordsOfARank) {
  auto run = healthy();
  for (const int rank : {0, 1}) run.record(rank).events.clear();
  run.info().exits = {{0, RankExit::Kind::kExited, 1, 5, 3, "", kPeerLost},
                      {1, RankExit::Kind::kExited, 1, 9, 3, "", "KeyError: 'label'"}};
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
}

TEST(RankCrashed, NamesTheSignal) {
  auto run = healthy();
  run.record(1).events.clear();
  run.info().exits = {{0, RankExit::Kind::kStopped, 9, 0, 0, "", ""},
                      {1, RankExit::Kind::kSignaled, 9, 0, 0, "", ""}};
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].message, HasSubstr("signal 9"));
}

TEST(RankCrashed, QuotesTheLastLineOfATorchScriptTrace) {
  auto run = healthy();
  run.raise(1, 2,
            "The following operation failed in the TorchScript interpreter.\nTraceback of "
            "TorchScript:\n  ...\nRuntimeError: bad sample\n");
  EXPECT_THAT(diagnose(run.build()).findings.at(0).message, HasSubstr("RuntimeError: bad sample"));
}

TEST(RankCrashed, StaysQuietWhereEveryRankFinished) {
  auto run = healthy();
  run.info().exits = {{0, RankExit::Kind::kExited, 0, 0, 0, "", ""},
                      {1, RankExit::Kind::kExited, 0, 0, 0, "", ""}};
  EXPECT_THAT(diagnose(run.build()).findings, IsEmpty());
}

TEST(Causes, TwoIndependentBugsAreTwoFindings) {
  auto run = healthy();
  run.differ(1, 0, Stage::kWeight, 0);    // began apart
  run.differ(0, 1, Stage::kGradient, 3);  // and one gradient is not averaged
  EXPECT_THAT(codes(diagnose(run.build()).findings), ElementsAre("DDP104", "DDP302"));
}

}  // namespace
}  // namespace ddp_doctor
