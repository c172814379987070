// SPDX-License-Identifier: BSD-3-Clause
// The rules about ranks that wait for each other (DDP111, DDP501, DDP502, DDP503, DDP505): a run on
// which each fires, and runs that come near to it. DDP504 is in rules_test.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two or more ranks that trained `steps` steps, with their call logs, and never finished.
class Hang {
 public:
  explicit Hang(int world_size = 2, int steps = 3, bool wrapped = true)
      : run_(world_size, {"body.weight", "head.weight"}, steps), steps_(steps) {
    if (wrapped) run_.wrapper({{"find_unused_parameters", "0"}});
    for (int rank = 0; rank < world_size; ++rank) {
      run_.record(rank).events.clear();
      RankExit exit;
      exit.rank = rank;
      exit.kind = RankExit::Kind::kTimedOut;
      exit.step = steps + 1;
      exit.phase = "collective";
      run_.info().exits.push_back(exit);
      for (int step = 1; wrapped && step <= steps; ++step) train(rank, step);
    }
  }

  // Returns the call, to be changed.
  LoggedCall& call(int rank, const std::string& op, int line, int step = 0) {
    auto& calls = run_.record(rank).calls;
    LoggedCall call;
    call.number = static_cast<std::int64_t>(calls.size()) + 1;
    call.position = op.starts_with("data.") ? 0 : ++positions_[rank];
    call.step = step == 0 ? steps_ + 1 : step;
    call.begin_ns = call.end_ns = call.number;
    call.op = op;
    call.file = "train.py";
    call.line = line;
    if (op.starts_with("ddp.")) call.target = "wrapper 0";
    calls.push_back(call);
    return calls.back();
  }
  // One that no other rank takes part in.
  LoggedCall& local(int rank, const std::string& op, int line, int step) {
    LoggedCall& alone = call(rank, op, line, step);
    --positions_[rank];
    alone.position = 0;
    return alone;
  }
  LoggedCall& waits(int rank, const std::string& op, int line) {
    LoggedCall& waiting = call(rank, op, line);
    waiting.end_ns = 0;
    return waiting;
  }
  void train(int rank, int step) { call(rank, "ddp.backward", 10, step); }
  void evaluate(int rank, int line) {
    LoggedCall& forward = call(rank, "ddp.forward", line);
    forward.reduce = "no_grad";
  }
  void reduce(int rank, const std::string& name, std::int64_t numel, bool returns = true) {
    LoggedCall& reduction = call(rank, "all_reduce", 30);
    reduction.moment = "before-step";
    reduction.dtype = "float32";
    reduction.numel = numel;
    if (!name.empty()) reduction.target = "gradient of " + name;
    if (!returns) reduction.end_ns = 0;
  }
  void ends(int rank) {
    run_.record(rank).events.push_back({steps_, 1, "end", "finished", ""});
    exit(rank).kind = RankExit::Kind::kExited;
  }
  // What came did not fit into what the rank was waiting for; the others lose its connection.
  void is_ended_by_gloo(int rank) {
    exit(rank).kind = RankExit::Kind::kSignaled;
    exit(rank).code = 6;
    exit(rank).last_words = "[enforce fail at pair.cc] op.preamble.length <= op.nbytes. 70 vs 60";
    for (const auto& other : run_.info().exits) {
      if (other.rank != rank) run_.raise(other.rank, steps_ + 1, "Connection reset by peer", 2);
    }
  }
  RankExit& exit(int rank) { return run_.info().exits.at(static_cast<std::size_t>(rank)); }
  RunBuilder& run() { return run_; }
  std::vector<Finding> findings() { return diagnose(run_.build()).findings; }

 private:
  RunBuilder run_;
  int steps_;
  std::map<int, std::int64_t> positions_;
};

// ---- DDP504

TEST(RankCrashed, IsTheCauseWhereARankExitsAndOthersWaitForIt) {
  Hang hang;
  for (int rank : {0, 1}) hang.train(rank, 4);
  hang.waits(0, "ddp.backward", 10);
  hang.ends(1);
  hang.exit(1).code = 3;
  hang.exit(1).last_words = "ended with exit status 3";
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].message, HasSubstr("status 3"));
}

TEST(RankCrashed, IsTheCauseWhereARankGoesOnAfterAnExceptionAndOthersWaitForIt) {
  Hang hang;
  for (int rank : {0, 1}) hang.train(rank, 4);
  hang.waits(0, "ddp.backward", 10);
  hang.waits(1, "barrier", 20);
  const std::string error = "Traceback (most recent call last):\n  ...\nValueError: bad sample";
  hang.run().record(1).events.push_back({4, 5, "caught", "batch", error});
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].message, HasSubstr("went on without the others"));
  EXPECT_EQ(findings[0].certainty, Certainty::kLikely);
}

TEST(RankCrashed, IsNotTheCauseWhereTheRankWaitsWhereTheOthersDo) {
  Hang hang;
  for (int rank : {0, 1}) hang.train(rank, 4);
  for (int rank : {0, 1}) hang.waits(rank, "ddp.backward", 10);
  hang.run().record(1).events.push_back({4, 5, "caught", "batch", "KeyError: 'cache'"});
  EXPECT_THAT(codes_of(hang.findings()), ElementsAre("DDP501"));
}

// ---- DDP503

TEST(UnevenInputs, NamesTheRankWhoseLoaderIsExhausted) {
  Hang hang;
  for (int rank : {0, 1}) hang.call(rank, "data.begin", 8);
  for (int rank : {0, 1}) hang.train(rank, 4);
  hang.waits(0, "ddp.backward", 10);
  hang.call(1, "data.end", 8);
  hang.waits(1, "barrier", 20);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP503"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].first_step, 4);
  EXPECT_EQ(findings[0].where->line, 8);
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("barrier at train.py:20"),
                                         HasSubstr("rank 0 waits in the backward")));
}

// In its second forward DistributedDataParallel makes its buckets anew, with a broadcast.
TEST(UnevenInputs, NamesTheRankThatLeftAnotherWaitingInTheWrappersOwnForward) {
  for (const char* innermost : {"torch/nn/parallel/distributed.py", "train.py"}) {
    Hang hang;
    hang.local(0, "ddp.forward", 9, 4).end_ns = 0;
    hang.waits(1, "barrier", 20);
    auto timeline = hang.run().build();
    timeline.stacks[0] = {{innermost, 1797, "_pre_forward"}, {"train.py", 9, "main"}};
    const auto findings = diagnose(timeline).findings;
    const bool in_wrapper = std::string_view(innermost) != "train.py";
    ASSERT_THAT(codes_of(findings), ElementsAre(in_wrapper ? "DDP503" : "DDP501"));
    EXPECT_THAT(findings[0].ranks, ElementsAre(in_wrapper ? 1 : 0));
  }
}

TEST(UnevenInputs, NamesTheRankThatCameToItsEndAndTookItsPeerDown) {
  Hang hang;
  hang.waits(0, "ddp.backward", 10);
  hang.ends(1);
  hang.run().raise(0, 4, "Connection closed by peer [127.0.0.1]:1");
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP503"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP504"));
}

TEST(UnevenInputs, IsSeenInAnEvaluationToo) {
  Hang hang;
  for (int rank : {0, 1}) hang.evaluate(rank, 40);
  hang.evaluate(0, 40);
  hang.waits(1, "all_reduce", 50);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP503"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
}

TEST(UnevenInputs, TakesOnlyALoaderThatTheOthersAreStillIn) {
  Hang hang;
  for (int rank : {0, 1}) {
    hang.call(rank, "data.begin", 8);
    hang.call(rank, "data.end", 8);  // the training's, at the same place on both
    hang.call(rank, "data.begin", 40);
    hang.call(rank, "all_reduce", 41);
  }
  hang.call(0, "data.end", 40);
  hang.waits(0, "barrier", 50);
  hang.waits(1, "all_reduce", 41);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP503"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  EXPECT_EQ(findings[0].where->line, 40);
}

TEST(UnevenInputs, NamesWhoLeftALoopThatSynchronizesByHand) {
  Hang hang(2, 3, false);
  hang.reduce(0, "body.weight", 4, false);
  hang.waits(1, "barrier", 40);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP503"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
}

TEST(UnevenInputs, NamesWhoLeftItsLoopWithoutALoader) {
  for (const bool gloo_complains : {false, true}) {
    Hang hang;
    hang.waits(0, "ddp.backward", 10);
    hang.waits(1, "barrier", 20);
    if (gloo_complains) hang.is_ended_by_gloo(1);
    EXPECT_THAT(codes_of(hang.findings()), ElementsAre("DDP503"));
  }
}

// Early stopping between two epochs, and in the middle of one.
TEST(UnevenInputs, TellsADecisionFromDataThatEnded) {
  for (const bool between : {true, false}) {
    Hang hang;
    for (int rank : {0, 1}) hang.call(rank, "data.begin", 8);
    if (between) {
      for (int rank : {0, 1}) hang.call(rank, "data.end", 8);
      hang.call(0, "data.begin", 8);
    }
    hang.waits(0, "ddp.backward", 10);
    hang.waits(1, "barrier", 20);
    const auto findings = hang.findings();
    ASSERT_THAT(codes_of(findings), ElementsAre("DDP503"));
    EXPECT_THAT(findings[0].ranks, ElementsAre(1));
    EXPECT_EQ(findings[0].evidence["decided_to_stop"], true) << between;
    EXPECT_THAT(findings[0].message, HasSubstr("decided alone to stop"));
    EXPECT_THAT(findings[0].prescription.text, HasSubstr("decide together"));
    EXPECT_EQ(findings[0].where->line, 20);
  }
}

// ---- DDP505

TEST(RankLocalCollective, NamesTheRankThatEvaluatesAlone) {
  Hang hang;
  hang.evaluate(0, 40);  // a small broadcast does not wait
  hang.waits(0, "barrier", 20);
  hang.waits(1, "barrier", 20);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP505"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  EXPECT_EQ(findings[0].where->line, 40);
  EXPECT_THAT(findings[0].prescription.text, HasSubstr("model.module(x)"));
}

TEST(RankLocalCollective, NamesRankZerosOwnReduction) {
  for (const bool gloo_complains : {false, true}) {
    Hang hang;
    hang.waits(0, "all_reduce", 25);
    hang.waits(1, "ddp.backward", 10);
    if (gloo_complains) hang.is_ended_by_gloo(0);
    const auto findings = hang.findings();
    ASSERT_THAT(codes_of(findings), ElementsAre("DDP505"));
    EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  }
}

TEST(RankLocalCollective, NamesRankZerosOwnReductionInAGroupOfItsOwn) {
  Hang hang(2, 1, false);
  hang.run().info().world_size = 2;
  hang.waits(0, "all_reduce", 25).group = "0,1";
  hang.waits(1, "ddp.backward", 10).group = "";
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP505"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  EXPECT_EQ(findings[0].where->line, 25);
}

TEST(RankLocalCollective, NamesWhoReducesWhileTheOthersAreAtABarrier) {
  Hang hang(3);
  for (int rank : {0, 1, 2})
    hang.waits(rank, rank == 1 ? "all_reduce" : "barrier", rank == 1 ? 25 : 20);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP505"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
}

TEST(RankLocalCollective, NamesABarrierThatTheOthersNeverReach) {
  Hang hang;
  hang.waits(0, "barrier", 25);
  hang.ends(1);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP505"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0));
}

TEST(RankLocalCollective, NamesABarrierInsideAForwardThatTheOthersReturnedFrom) {
  for (const bool inside : {true, false}) {
    Hang hang;
    hang.local(0, "ddp.forward", 9, 4).end_ns = inside ? 0 : 1;
    hang.waits(0, "barrier", 25);
    hang.waits(1, "ddp.backward", 10);
    const auto findings = hang.findings();
    ASSERT_THAT(codes_of(findings), ElementsAre(inside ? "DDP505" : "DDP503"));
    EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  }
}

// ---- DDP502

TEST(CollectiveMismatch, IsFoundWhereRanksReduceDifferentNumbersOfThings) {
  Hang hang;
  for (int rank : {0, 1}) hang.call(rank, "all_reduce", 25);
  hang.waits(0, "all_reduce", 25);
  hang.waits(1, "ddp.backward", 10);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP502"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].evidence["parted_in"]["0"], "all_reduce at train.py:25");
}

TEST(CollectiveMismatch, BlamesTheRankThatSkippedABackwardAndNotOneWhoseBackwardReachedNothing) {
  for (const bool skipped : {true, false}) {
    Hang hang(2, 0);
    for (int step : {1, 2}) {
      for (int rank : {0, 1}) {
        hang.local(rank, "ddp.forward", 9, step);
        if (rank == 0 || step == 1) hang.train(rank, step);
        if (rank == 1 && step == 2 && !skipped)
          hang.local(rank, "ddp.backward", 10, step).reduce = "no_gradient";
      }
    }
    hang.local(1, "ddp.forward", 9, 3);
    hang.waits(1, "ddp.backward", 10).step = 3;
    const auto findings = hang.findings();
    ASSERT_THAT(codes_of(findings), ElementsAre("DDP502"));
    EXPECT_EQ(findings[0].ranks, skipped ? std::vector{1} : (std::vector{0, 1}));
    EXPECT_EQ(findings[0].message.find("skipped") != std::string::npos, skipped);
  }
}

TEST(CollectiveMismatch, IsFoundWhereSizesDiffer) {
  Hang hang;
  hang.waits(0, "all_reduce", 25).numel = 4;
  hang.waits(1, "all_reduce", 25).numel = 6;
  EXPECT_THAT(codes_of(hang.findings()), ElementsAre("DDP502"));
}

TEST(CollectiveMismatch, IsFoundWhereRanksWaitInDifferentGroups) {
  Hang hang(2, 1, false);
  hang.run().info().world_size = 2;
  auto& first = hang.waits(0, "all_reduce", 25);
  first.group = "0,1";
  auto& second = hang.waits(1, "all_reduce", 26);
  second.group = "";
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP502"));
  EXPECT_THAT(findings[0].message, HasSubstr("different groups"));
}

TEST(CollectiveMismatch, ExplainsGloosComplaintAboutSizes) {
  Hang hang;
  hang.waits(0, "all_reduce", 25).numel = 4;
  hang.waits(1, "all_reduce", 25).numel = 6;
  hang.run().raise(1, 4, "[enforce fail at pair.cc] op.preamble.length <= op.nbytes. 24 vs 16", 1);
  hang.run().raise(0, 4, "Connection closed by peer", 2);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP502"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP504"));
}

// Sizes may differ between the ranks of some collectives, and with Gloo not of all_gather: only its
// complaint tells. The other rank may have come through, and gone on.
TEST(CollectiveMismatch, ExplainsGloosComplaintAboutAGather) {
  for (const bool goes_on : {false, true}) {
    Hang hang;
    for (int rank : {0, 1}) hang.call(rank, "data.begin", 8);
    hang.waits(0, "all_gather", 25).numel = 70;
    hang.waits(1, "all_gather", 25).numel = 60;
    hang.call(0, "data.end", 8);
    if (goes_on) hang.waits(0, "ddp.backward", 10);
    hang.is_ended_by_gloo(1);
    const auto findings = hang.findings();
    ASSERT_THAT(codes_of(findings), ElementsAre("DDP502"));
    EXPECT_EQ(findings[0].where->line, 25);
    EXPECT_THAT(findings[0].message, AllOf(HasSubstr("of 70"), HasSubstr("of 60")));
    EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP504"));
  }
}

// ---- DDP501

TEST(StalledRank, IsTheOneThatIsInNoCollective) {
  Hang hang;
  hang.waits(0, "ddp.backward", 10);
  hang.exit(1).phase = "batch";
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP501"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].certainty, Certainty::kCertain);
  EXPECT_THAT(findings[0].message,
              AllOf(HasSubstr("Rank 1"), HasSubstr("between steps"), HasSubstr("rank 0 waits")));
}

TEST(StalledRank, IsGuessedFromSilenceWithoutLogs) {
  Hang hang(2, 3, false);
  hang.exit(1).phase = "forward";
  hang.run().raise(0, 4, "Timed out waiting 3000ms for recv operation to complete");
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP501"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].certainty, Certainty::kLikely);
  EXPECT_THAT(findings[0].message,
              HasSubstr("Rank 1 made no progress in step 4, while rank 0 waited"));
}

// ---- DDP111

TEST(RankDependentManualSync, NamesWhatARankLeftOut) {
  Hang hang(2, 3, false);
  for (int rank : {0, 1}) hang.reduce(rank, "body.weight", 4);
  hang.reduce(0, "head.weight", 6, false);
  hang.waits(1, "barrier", 40);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP111"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  ASSERT_EQ(findings[0].parameters.size(), 1U);
  EXPECT_EQ(findings[0].parameters[0].name, "head.weight");
  EXPECT_EQ(findings[0].where->line, 30);
}

TEST(RankDependentManualSync, IsFoundInFlatCopiesOfDifferentSizes) {
  for (const bool gloo_complains : {false, true}) {
    Hang hang(2, 3, false);
    hang.reduce(0, "", 10, false);
    hang.reduce(1, "", 4, false);
    if (gloo_complains) hang.is_ended_by_gloo(1);
    EXPECT_THAT(codes_of(hang.findings()), ElementsAre("DDP111"));
  }
}

TEST(RankDependentManualSync, IsFoundInAStepThatEveryoneCameThrough) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 3);
  const Collective both = {
      "all_reduce", "sum", "float32", 1, "", "before-step", "gradient of body.weight",
      "train.py",   30,    1};
  Collective one = both;
  one.target = "gradient of head.weight";
  run.call(both);
  run.step(0, 2).calls.push_back(one);
  run.differ(0, 1, Stage::kGradient, 2);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP111"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].first_step, 2);
}

TEST(RankDependentManualSync, LeavesLossesAlone) {
  RunBuilder run(2, {"body.weight", "head.weight"}, 3);
  run.wrapper({{"find_unused_parameters", "0"}});
  run.step(0, 2).calls.push_back(
      {"reduce", "sum", "float32", 1, "", "before-step", "", "train.py", 30, 1});
  EXPECT_THAT(codes_of(diagnose(run.build()).findings), IsEmpty());
}

// ---- none of them

TEST(Divergence, IsNoneOfARunThatCameToItsEnd) {
  Hang hang;
  hang.call(0, "barrier", 20);
  for (int rank : {0, 1}) hang.ends(rank);
  EXPECT_THAT(codes_of(hang.findings()), IsEmpty());
}

TEST(Divergence, IsNotBlamedWhereARankFellByItself) {
  Hang hang;
  hang.waits(0, "ddp.backward", 10);
  hang.run().raise(1, 4, "ValueError: the data is damaged", 1);
  hang.run().raise(0, 4, "Connection closed by peer", 2);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
}

TEST(Divergence, IsNotGuessedBeyondWhatTheLogsHold) {
  Hang hang;
  hang.waits(0, "ddp.backward", 10);
  hang.waits(1, "ddp.backward", 10);
  for (int rank : {0, 1}) {
    auto& calls = hang.run().record(rank).calls;
    // Rank 1's positions are one behind, since before its log begins.
    for (auto& call : calls) {
      call.number += 5000;
      call.position += rank == 0 ? 5000 : 4999;
    }
  }
  for (const auto& finding : hang.findings()) EXPECT_NE(finding.rule, "DDP502") << finding.message;
}

TEST(StalledRank, IsNobodyWhereAllEnteredTheSameCollective) {
  Hang hang;
  for (int rank : {0, 1}) hang.waits(rank, "ddp.backward", 10);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP501"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].where->line, 10);
  EXPECT_THAT(findings[0].message, HasSubstr("none returned"));
}

TEST(StalledRank, IsOnAnotherMachineWhereAllHereWait) {
  Hang hang;
  hang.run().info().world_size = 3;
  for (int rank : {0, 1}) {
    hang.run().record(rank).header.world_size = 3;
    hang.waits(rank, "ddp.backward", 10);
  }
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP501"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("stopped responding in step 4"),
                                         HasSubstr("rank 1 waits in the backward")));
}

TEST(CollectiveMismatch, BeginsWhereARankLeftAnAsynchronousCallOut) {
  Hang hang;
  for (int rank : {0, 1}) hang.call(rank, "all_reduce", 30, 1);
  hang.call(0, "all_reduce", 30, 2);
  for (int rank : {0, 1}) hang.train(rank, 3);
  for (int rank : {0, 1}) hang.call(rank, "all_reduce", 30, 4);
  hang.waits(0, "barrier", 40);
  hang.waits(1, "barrier", 40);
  const auto findings = hang.findings();
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP502"));
  EXPECT_EQ(findings[0].first_step, 2);
}

}  // namespace
}  // namespace ddp_doctor
