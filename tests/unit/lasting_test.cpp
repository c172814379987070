// SPDX-License-Identifier: BSD-3-Clause
// What is said of a run that is not over. run_builder.h replays every prefix of every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "lib/diagnose/diagnose.h"
#include "lib/diagnose/rule.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/value/report.h"
#include "lib/report/value/verdict.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunBuilder bypassed(int from_step) {
  RunBuilder run(2, {"a", "b"}, 6);
  run.wrapper({});
  for (const int tensor : {0, 1}) run.differ(1, tensor, Stage::kGradient, from_step);
  return run.each_step([=](int, StepRecord& step) {
    if (step.step < from_step) return;
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
}

// A run of which rank 1 is a step behind, in a collective.
RunBuilder in_the_midst() {
  RunBuilder run(2, {"a"}, 6);
  run.record(1).steps.pop_back();
  run.record(0).events.clear();
  run.record(1).events = {{6, 20, "error", "backward", "Connection closed by peer"}};
  run.info().exits = {{0, RankExit::Kind::kStopped, 0, 0, 7, "batch", ""},
                      {1, RankExit::Kind::kStopped, 0, 0, 6, "backward", ""}};
  return run;
}

TEST(Lasting, IsFoundAsSoonAsItHappens) {
  const auto run = [](std::int64_t until) {
    RunBuilder builder = bypassed(3);
    return codes_of(lasting(
        diagnose(Timeline::merge(builder.info(), {builder.record(0), builder.record(1)}, until))
            .findings));
  };
  EXPECT_THAT(run(2), IsEmpty());
  EXPECT_THAT(run(3), ElementsAre("DDP101"));
}

TEST(Lasting, NamesRules) {
  int rules = 0;
  for (const Rule* rule : all_rules()) {
    rules += rule->lasting ? 1 : 0;
    EXPECT_FALSE(rule->lasting && rule->severity == Severity::kAdvice) << rule->code;
  }
  EXPECT_EQ(rules, 9);
  for (const char* may_be_withdrawn : {"DDP102", "DDP201", "DDP301", "DDP501", "DDP504"})
    EXPECT_FALSE(find_rule(may_be_withdrawn)->lasting);
}

// The same for a run that was recorded: tests/python/test_corpus.py gives each of its own.
TEST(Lasting, HoldsOnARecordedRun) {
  const char* folder = std::getenv("DDP_DOCTOR_RECORDED_RUN");
  if (folder == nullptr) GTEST_SKIP() << "DDP_DOCTOR_RECORDED_RUN is not set";
  RunInfo run = load_run_info(folder);
  const Timeline whole = Timeline::load(folder, run);
  std::set<std::string> in_the_end;
  for (const auto& root : diagnose(whole).findings) {
    in_the_end.insert(root.rule);
    for (const auto& consequence : root.consequences) in_the_end.insert(consequence.rule);
  }
  run.exits.clear();
  for (const auto& step : whole.steps) {
    if (step.number < 2) continue;  // as the launcher (run_watch.h)
    for (const auto& finding :
         lasting(diagnose(Timeline::load(folder, run, step.number)).findings)) {
      EXPECT_TRUE(in_the_end.contains(finding.rule))
          << finding.rule << " after step " << step.number << ": " << finding.message;
    }
  }
}

TEST(Interrupted, IsNeitherAHangNorACrash) {
  RunBuilder run = in_the_midst();
  run.info().ending = Ending::kInterrupted;
  run.info().ended_ns = 10;
  const Timeline timeline = run.build();
  EXPECT_EQ(timeline.steps.back().number, 5);
  const Report report = make_report({report_run(timeline, 0)});
  EXPECT_THAT(codes_of(report.findings), IsEmpty());
  EXPECT_EQ(report.health(), Health::kInconclusive);
  EXPECT_THAT(verdict_of(report, {}), HasSubstr("interrupted after 5 steps"));
}

TEST(Interrupted, KeepsWhatFailedBefore) {
  RunBuilder run = in_the_midst();
  run.info().ending = Ending::kInterrupted;
  run.info().ended_ns = 30;
  EXPECT_THAT(diagnosed(std::move(run)), ElementsAre("DDP504"));
}

TEST(Interrupted, SaysWhatWasFound) {
  RunBuilder run = bypassed(1);
  for (const int rank : {0, 1}) run.record(rank).events.clear();
  run.info().ending = Ending::kInterrupted;
  const Report report = make_report({report_run(run.build(), 0)});
  EXPECT_EQ(report.health(), Health::kSick);
  EXPECT_THAT(verdict_of(report, {}), HasSubstr("DDP101"));
}

TEST(StopAfter, IsAsConclusiveAsAnEnd) {
  RunBuilder run = in_the_midst();
  run.info().ending = Ending::kStopAfter;
  run.info().ended_ns = 10;
  const Report report = make_report({report_run(run.build(), 0)});
  EXPECT_EQ(report.health(), Health::kHealthy);
}

}  // namespace
}  // namespace ddp_doctor
