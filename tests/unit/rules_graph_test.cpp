// SPDX-License-Identifier: BSD-3-Clause
// The rules about the graph (DDP203, DDP205, DDP208): a run on which each fires, and healthy runs
// that come near to it. DDP201, 202, 204, 206 and 207 are in rules_test.cpp.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// As PyTorch writes it: it speaks of `checkpoint` whether or not there is one.
constexpr char kMarkedTwice[] =
    "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the "
    "following reasons: 1) Use of a module parameter outside the `forward` function. 2) Reused "
    "parameters in multiple reentrant backward passes. For example, if you use multiple "
    "`checkpoint` functions to wrap the same part of your model, it would result in the same set "
    "of parameters been used by different reentrant backward passes multiple times.\nParameter at "
    "index 1 with name head.weight has been marked as ready twice. This means that multiple "
    "autograd engine  hooks have fired for this particular parameter during this iteration.";

RunBuilder wrapped(std::map<std::string, std::string> options, int steps = 4) {
  return RunBuilder(2, {"body.weight", "head.weight"}, steps).wrapper(std::move(options));
}

// ---- DDP203

TEST(StepDependentGraph, NamesWhatComesAndGoes) {
  auto run = wrapped({{"find_unused_parameters", "0"}});
  for (int rank : {0, 1}) run.unused(rank, 1, 2, 2);
  const auto finding = found("DDP203", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_THAT(finding->ranks, ElementsAre(0, 1));
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_EQ(finding->evidence["changes"], 2);
  EXPECT_EQ(finding->prescription.strategy, "ddp-find-unused");
}

TEST(StepDependentGraph, IsAdviceWhereFindUnusedCoversIt) {
  auto run = wrapped({{"find_unused_parameters", "1"}});
  for (int rank : {0, 1}) run.unused(rank, 1, 3);
  const auto finding = found("DDP203", run);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::kAdvice);
  EXPECT_THAT(finding->message, HasSubstr("static_graph=True would not"));
}

TEST(StepDependentGraph, StaysQuietWhereTheUnusedSetStays) {
  auto run = wrapped({{"find_unused_parameters", "1"}});
  for (int rank : {0, 1}) run.unused(rank, 1);
  EXPECT_FALSE(found("DDP203", run));
  EXPECT_THAT(diagnosed(wrapped({{"find_unused_parameters", "0"}})), IsEmpty());
}

// Two wrappers share the body, which counts as the second one's, and take turns.
TEST(StepDependentGraph, StaysQuietInAnotherWrappersTurn) {
  RunBuilder run(2, {"body.weight", "first.weight", "second.weight"}, 6);
  run.tensors([](int, TensorInfo& tensor) { tensor.wrapper = tensor.id == 1 ? 0 : 1; });
  for (int rank : {0, 1}) {
    for (int wrapper : {0, 1}) {
      for (const char* key : {"find_unused_parameters", "static_graph", "world_size"})
        run.record(rank).ddp_fields.push_back({"construction", key, "0", true, wrapper});
    }
    for (int step = 1; step <= 6; ++step) run.unused(rank, step % 2 == 0 ? 1 : 2, step, step);
  }
  run.each_step(
      [](int, StepRecord& step) { step.trace = step.step % 2 == 0 ? "F1+ B1+" : "F0+ B0+,1-"; });
  EXPECT_FALSE(found("DDP203", run));
  for (int rank : {0, 1}) run.unused(rank, 0, 4, 4);
  const auto finding = found("DDP203", run);
  ASSERT_TRUE(finding) << "a change within its own turns";
  EXPECT_THAT(names_of(*finding), ElementsAre("body.weight"));
}

TEST(StepDependentGraph, StaysQuietWhereOnlyTheRankDecides) {
  auto run = wrapped({{"find_unused_parameters", "1"}});
  run.usage(
      0, [](int rank, Usage& usage) { usage.used = rank == 0; }, 2, 2);
  EXPECT_FALSE(found("DDP203", run)) << "used by one rank in every step";
}

TEST(StepDependentGraph, LeavesABrokenPromiseOfStaticGraphToDDP206) {
  auto run = wrapped({{"static_graph", "1"}});
  for (int rank : {0, 1}) run.unused(rank, 1, 3);
  EXPECT_FALSE(found("DDP203", run));
  EXPECT_TRUE(found("DDP206", run));
}

// Once advice: of an optimizer's parameters the steps of another one say nothing.
TEST(StepDependentGraph, StaysQuietForTwoOptimizersInTurn) {
  auto run = wrapped({{"find_unused_parameters", "1"}}, 6);
  for (int rank : {0, 1}) run.unused(rank, 1);
  run.each_step([](int, StepRecord& step) {
    step.optimizer = static_cast<int>(step.step % 2);
    std::erase_if(step.usages, [&](const Usage& usage) { return usage.tensor != step.optimizer; });
    std::erase_if(step.observations,
                  [&](const Observation& seen) { return seen.tensor != step.optimizer; });
  });
  EXPECT_FALSE(found("DDP203", run));
}

// ---- DDP205

TEST(MarkedReadyTwice, NamesTheParameterAndExplainsTheCrash) {
  auto run = wrapped({{"find_unused_parameters", "0"}});
  run.raise(0, 1, kMarkedTwice).raise(1, 1, kMarkedTwice);
  const auto findings = diagnose(run.build()).findings;
  ASSERT_THAT(codes_of(findings), ElementsAre("DDP205"));
  EXPECT_THAT(codes_of(findings[0].consequences), ElementsAre("DDP504"));
  EXPECT_THAT(findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].first_step, 1);
  EXPECT_THAT(names_of(findings[0]), ElementsAre("head.weight"));
  EXPECT_EQ(findings[0].prescription.strategy, "ddp-static-graph");
}

// Once true of every such error: PyTorch's own text has the word.
TEST(MarkedReadyTwice, IsOfCheckpointsOnlyWhereThereAreSome) {
  auto run = wrapped({{"find_unused_parameters", "1"}});
  run.raise(0, 2, kMarkedTwice).raise(1, 2, kMarkedTwice);
  const auto plain = found("DDP205", run);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->evidence["reentrant_checkpointing"], false);
  EXPECT_THAT(plain->message, HasSubstr("called outside of it"));
  const auto shared = wrapped({}).raise(0, 2, kMarkedTwice).raise(1, 2, kMarkedTwice);
  EXPECT_THAT(found("DDP205", shared)->message, HasSubstr("several backward passes"));

  const auto seen = found("DDP205", RunBuilder(run).trace("F0+ R*2 B0+", 1));
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->evidence["reentrant_checkpointing"], true);
  EXPECT_EQ(seen->prescription.strategy, "ddp") << "without find_unused_parameters it works";

  const std::string traced =
      "Traceback (most recent call last):\n  File \"torch/utils/checkpoint.py\", line 1, in "
      "backward\n" +
      std::string(kMarkedTwice);
  run.raise(0, 1, traced).raise(1, 1, traced);
  EXPECT_EQ(found("DDP205", run)->evidence["reentrant_checkpointing"], true);
}

TEST(MarkedReadyTwice, StaysQuietForReentrantCheckpointsThatTrain) {
  EXPECT_THAT(diagnosed(wrapped({{"static_graph", "1"}}).trace("F0+ R*2 B0+", 1)), IsEmpty());
}

TEST(MarkedReadyTwice, StaysQuietForOtherErrors) {
  auto run = wrapped({{"find_unused_parameters", "0"}});
  run.raise(0, 2, "CUDA out of memory").raise(1, 2, "Connection closed by peer", 5);
  EXPECT_THAT(diagnosed(run), ElementsAre("DDP504"));
}

// ---- DDP208

// The weight of an unused parameter after each step: moves unless told otherwise.
RunBuilder unused_head() {
  auto run = wrapped({{"find_unused_parameters", "1"}});
  for (int rank : {0, 1}) run.unused(rank, 1);
  return run;
}

TEST(UnusedButUpdated, NamesWhatMovesWithoutAGradient) {
  const auto finding = found("DDP208", unused_head());
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::kAdvice);
  EXPECT_EQ(finding->first_step, 2);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_EQ(finding->evidence["steps_moved"], 3);
}

// A loss multiplied by 0, so that DistributedDataParallel has nothing to wait for.
TEST(UnusedButUpdated, NamesWhatMovesOnZeros) {
  auto run = wrapped({});
  for (int rank : {0, 1}) run.observe(rank, 1, Stage::kGradient, 0);
  const auto finding = found("DDP208", run);
  ASSERT_TRUE(finding);
  EXPECT_THAT(names_of(*finding), ElementsAre("head.weight"));
  EXPECT_EQ(finding->evidence["zero_gradients"], true);
  for (int rank : {0, 1}) run.observe(rank, 1, Stage::kGradient, 5, 3);
  EXPECT_FALSE(found("DDP208", run)) << "it gets gradients later";
}

TEST(UnusedButUpdated, StaysQuietWhereItStands) {
  auto run = unused_head();
  for (int rank : {0, 1}) run.observe(rank, 1, Stage::kWeight, 10, 0);
  EXPECT_FALSE(found("DDP208", run));
}

TEST(UnusedButUpdated, StaysQuietForAParameterThatIsUsed) {
  EXPECT_FALSE(found("DDP208", wrapped({{"find_unused_parameters", "1"}})));
}

// Once blamed on the optimizer, which does not hold it: a target network that follows by an
// average.
TEST(UnusedButUpdated, StaysQuietForWhatNoOptimizerHolds) {
  auto run = unused_head();
  run.usage(1, [](int, Usage& usage) { usage.in_optimizer = false; });
  EXPECT_FALSE(found("DDP208", run));
}

TEST(UnusedButUpdated, StaysQuietWhereStepsInBetweenWereNotSeen) {
  auto run = unused_head();
  run.each_step([](int, StepRecord& step) { step.examined = step.step % 2 == 0; });
  EXPECT_FALSE(found("DDP208", run));
}

// ---- pages

TEST(Pages, EveryRuleHasOneThatIsListed) {
  const std::filesystem::path folder = DDP_DOCTOR_RULE_PAGES;
  std::stringstream list;
  list << std::ifstream(folder / "README.md").rdbuf();
  for (const Rule* rule : all_rules()) {
    EXPECT_THAT(list.str(), testing::HasSubstr(fmt::format("[{0} {1}]({0}.md) | {2} |", rule->code,
                                                           rule->name, name_of(rule->severity))));
    std::ifstream page(folder / (std::string(rule->code) + ".md"));
    ASSERT_TRUE(page) << rule->code;
    std::string title;
    std::getline(page, title);
    EXPECT_THAT(title, testing::StartsWith(std::string("# ") + rule->code + " " + rule->name +
                                           " (" + name_of(rule->severity)));
  }
}

}  // namespace
}  // namespace ddp_doctor
