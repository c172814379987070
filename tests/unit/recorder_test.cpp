// SPDX-License-Identifier: BSD-3-Clause
// The step machine: which steps are examined, what is counted, and what a step says of a parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/record/reader.h"
#include "lib/recorder/history.h"
#include "lib/recorder/journal.h"
#include "lib/recorder/passes.h"
#include "lib/recorder/schedule.h"
#include "lib/recorder/usage.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Parameter parameter(int id, int wrapper, int index) {
  Parameter made;
  made.id = id;
  made.numel = 4;
  made.in_wrapper = wrapper;
  made.in_reducer = index;
  return made;
}

// ---- which steps

std::vector<std::int64_t> recorded_of(Schedule schedule, std::int64_t steps, int optimizers = 1) {
  std::vector<std::int64_t> found;
  for (; schedule.number() <= steps; schedule.next(0, optimizers)) {
    if (schedule.recorded()) found.push_back(schedule.number());
  }
  return found;
}

TEST(Schedule, RecordsTheFirstStepsThenEveryNthAndTheLast) {
  EXPECT_THAT(recorded_of(Schedule({.every = 5, .warmup = 3}), 12), ElementsAre(1, 2, 3, 5, 10));
  EXPECT_THAT(recorded_of(Schedule({.every = 5, .warmup = 1, .last = 12}), 12),
              ElementsAre(1, 5, 10, 12));
}

TEST(Schedule, RecordsOneStepOfEachOptimizer) {
  EXPECT_THAT(recorded_of(Schedule({.every = 6, .warmup = 1}), 14, 2),
              ElementsAre(1, 6, 7, 12, 13));
}

TEST(Schedule, CountsFromTheLastWrapper) {
  Schedule schedule({.every = 4, .warmup = 1});
  schedule.next(0, 1);
  EXPECT_FALSE(schedule.recorded());
  schedule.wrapper_made();
  EXPECT_TRUE(schedule.recorded());
  EXPECT_THAT(recorded_of(schedule, 9), ElementsAre(2, 5, 9));
}

TEST(Schedule, RecordsTheStepThatTheWatcherWants) {
  Schedule schedule({.every = 100, .warmup = 1});
  schedule.next(3, 1);
  EXPECT_FALSE(schedule.recorded());
  schedule.next(3, 1);
  EXPECT_TRUE(schedule.recorded() && schedule.is_wanted());
}

TEST(Schedule, ReadsGraphsInTwoRecordedStepsAndAgainAfterAChange) {
  Schedule schedule({.every = 2, .warmup = 1});
  std::vector<std::int64_t> read;
  for (; schedule.number() <= 12; schedule.next(0, 1)) {
    if (schedule.reads_graphs()) read.push_back(schedule.number());
    if (schedule.recorded())
      schedule.unused(schedule.number() < 6 ? std::vector<int>{} : std::vector{7});
  }
  EXPECT_THAT(read, ElementsAre(1, 2, 8, 10));
}

// ---- what is counted

TEST(History, ASecondOptimizerReadsTheBackwardThatTheFirstOneSteppedOn) {
  History history;
  history.loss(0.5);
  history.backward();
  history.token("B0+");
  const StepRecord first = history.row(history.beginning());
  history.token("S0");
  Mark stepped = history.now();
  history.step_ended({stepped});
  const StepRecord second = history.row(history.beginning());
  EXPECT_EQ(first.trace, "B0+");
  EXPECT_EQ(second.trace, "B0+ S0");
  EXPECT_EQ(second.backwards, 1);
  EXPECT_EQ(second.loss, 0.5);
  history.step_ended({stepped, history.now()});
  history.loss(2);
  history.loss(4);
  history.backward();
  history.token("B0+");
  EXPECT_EQ(history.row(stepped).loss, 3);
  history.step_ended({history.now(), history.now()});
  EXPECT_EQ(history.row(history.beginning()).trace, "B0+");
}

TEST(History, CountsEqualCollectivesTogetherButNotAcrossSteps) {
  History history;
  const Mark begin = history.now();
  Collective call;
  call.op = "all_reduce";
  history.call(call);
  history.call(call);
  ASSERT_EQ(history.calls(begin).size(), 1U);
  EXPECT_EQ(history.calls(begin)[0].count, 2);
  const Mark stepped = history.now();
  history.step_ended({stepped});
  history.call(call);
  ASSERT_EQ(history.calls(stepped).size(), 1U);
  EXPECT_EQ(history.calls(stepped)[0].count, 1);
}

struct PassesTest : testing::Test {
  History history;
  Passes passes{history};
  Parameter wrapped = parameter(0, 0, 0);
  Parameter plain = parameter(1, -1, -1);

  Passes::Arrival backward_to(Parameter& parameter, bool first_step = false) {
    passes.backward_begins();
    return passes.gradient_arrives(parameter, first_step);
  }
  void add_wrapper(int parameters) { passes.wrapper_made(passes.add_wrapper(), parameters); }
  std::string trace() const { return history.trace(history.beginning()); }
};

TEST_F(PassesTest, AReducedBackwardIsSeenBeforeItsReduction) {
  add_wrapper(1);
  passes.forward_begins(0, true);
  passes.forward_ends(0);
  const auto arrival = backward_to(wrapped);
  EXPECT_TRUE(arrival.begins_reduction && arrival.local);
  const auto ended = passes.backward_ends();
  EXPECT_THAT(ended.synchronized, ElementsAre(0));
  EXPECT_THAT(ended.partial, IsEmpty());
  EXPECT_EQ(trace(), "F0+ B0+");
  EXPECT_EQ(history.counts.reduced, 1);
  EXPECT_FALSE(backward_to(wrapped).local);  // a second one through the same forward
}

TEST_F(PassesTest, UnderNoSyncGradientsAccumulate) {
  add_wrapper(1);
  passes.forward_begins(0, false);
  EXPECT_FALSE(backward_to(wrapped).local);
  EXPECT_THAT(passes.backward_ends().synchronized, IsEmpty());
  EXPECT_TRUE(passes.is_accumulating(wrapped));
  EXPECT_EQ(history.counts.unsynchronized, 1);
  EXPECT_EQ(trace(), "F0- B0-");
  passes.step_closed(0);
  EXPECT_FALSE(passes.is_accumulating(wrapped));
}

TEST_F(PassesTest, AReadOutsideTheWrapperIsABypassOnlyWithoutAForward) {
  add_wrapper(1);
  passes.forward_begins(0, true);
  passes.forward_ends(0);
  passes.reads(wrapped, true);
  backward_to(wrapped);
  passes.backward_ends();
  EXPECT_EQ(history.counts.around, 0);
  passes.reads(wrapped, true);
  backward_to(wrapped);
  passes.backward_ends();
  EXPECT_EQ(history.counts.around, 1);
  EXPECT_EQ(trace(), "F0+ B0+ N0 B0-");
}

TEST_F(PassesTest, APartOfTheReducersParametersIsReported) {
  add_wrapper(2);
  passes.forward_begins(0, true);
  backward_to(wrapped);
  EXPECT_THAT(passes.backward_ends().partial, ElementsAre(0));
}

TEST_F(PassesTest, UnwrappedGradientsAreSeenAtOnceWhereHooksMayReduceThem) {
  EXPECT_TRUE(backward_to(plain, true).local);  // the first step
  EXPECT_TRUE(passes.is_examined(plain));
  EXPECT_TRUE(passes.backward_ends().unwrapped);
  EXPECT_FALSE(backward_to(plain).local);
  passes.collective(4, 16, "gradient of plain");  // a hook reduces it
  EXPECT_TRUE(passes.is_still_local(plain));
  passes.backward_ends();
  EXPECT_TRUE(backward_to(plain).local);
  EXPECT_FALSE(passes.is_still_local(plain));  // examined already
}

TEST_F(PassesTest, TellsWhenACollectiveIsCalled) {
  add_wrapper(1);
  EXPECT_STREQ(passes.moment(), "outside");
  passes.forward_begins(0, true);
  EXPECT_STREQ(passes.moment(), "forward");
  backward_to(wrapped);
  EXPECT_STREQ(passes.moment(), "backward");
  passes.backward_ends();
  EXPECT_STREQ(passes.moment(), "before-step");
  EXPECT_TRUE(passes.first_before_step());
  EXPECT_FALSE(passes.first_before_step());
  EXPECT_TRUE(passes.step_begins());
  passes.gradients_taken();
  EXPECT_STREQ(passes.moment(), "optimizer");
  EXPECT_FALSE(passes.step_begins());  // one inside another
  EXPECT_FALSE(passes.step_ends());
  EXPECT_TRUE(passes.step_ends());
  passes.step_closed(0);
  EXPECT_STREQ(passes.moment(), "outside");
}

// ---- parameters

TEST(CoveredBy, AnOptimizerAnswersForItsOwnAndForThoseOfItsWrapperThatNobodyHolds) {
  const Parameter own = parameter(0, 0, 0), beside = parameter(1, 0, 1), other = parameter(2, 0, 2),
                  elsewhere = parameter(3, 1, 0);
  const auto covered = covered_by({&own}, {&other});
  EXPECT_TRUE(covered(own) && covered(beside));
  EXPECT_FALSE(covered(other) || covered(elsewhere));
  EXPECT_TRUE(covered_by({&own}, {})(elsewhere));  // there is no other optimizer
}

struct UsageTest : testing::Test {
  History history;
  Reach reach = {false, false};
  bool grad = true, assigned = false;
  Parameter it = parameter(5, 0, 0);
  std::optional<Usage> usage(bool looked = true) {
    const ParameterView view{.reach =
                                 [=, this](const Parameter&) {
                                   return looked ? reach : Reach{reach.reached, {}};
                                 },
                             .requires_grad = [this](const Parameter&) { return grad; },
                             .has_gradient = [this](const Parameter&) { return assigned; },
                             .has_any_gradient = [this](const Parameter&) { return grad; }};
    return usage_of(it, {Mark{}, history.counts, {&it}, view});
  }
};

TEST_F(UsageTest, AnArrivalSaysAll) {
  Passes passes(history);
  passes.add_wrapper();
  passes.backward_begins();
  passes.gradient_arrives(it, false);
  const auto found = usage();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->used && *found->reached && *found->in_output && found->in_optimizer);
  EXPECT_EQ(found->arrivals, 1);
  EXPECT_EQ(found->last_backward, 1);
}

TEST_F(UsageTest, OfAnUnusedOneItSaysHowFarTheForwardGot) {
  EXPECT_FALSE(*usage()->reached || *usage()->in_output);
  reach.reached = true;
  EXPECT_TRUE(*usage()->reached && !*usage()->in_output);
  EXPECT_FALSE(usage(false)->in_output.has_value());
  reach.in_output = true;
  EXPECT_TRUE(*usage()->in_output);
}

TEST_F(UsageTest, AGradientWithoutABackwardIsAssignedUnlessRanksShareThem) {
  assigned = true;
  EXPECT_TRUE(usage()->assigned);
  history.counts.backwards = history.counts.collectives = 1;
  EXPECT_FALSE(usage()->assigned);
}

TEST_F(UsageTest, FrozenOnesAndThoseFoundInTheStepAreNotJudged) {
  grad = false;
  EXPECT_TRUE(usage()->frozen);
  it.trainable = false;
  EXPECT_FALSE(usage());
  grad = true;
  it.since = 1;
  EXPECT_FALSE(usage());
}

TEST(Parameter, IsWrittenWhereItsVersionChangedBetweenSteps) {
  Parameter it;
  EXPECT_TRUE(it.is_written(1, 0));  // newer than step 0
  it.began = true;
  EXPECT_FALSE(it.is_written(1, 0));
  it.seen_in = 4;
  it.seen_version = 8;
  EXPECT_TRUE(it.is_written(5, 9));
  EXPECT_FALSE(it.is_written(6, 9));  // steps in between were not examined
}

TEST(Journal, WritesFactsPlacesAndWarningsOnce) {
  const TemporaryFolder folder;
  {
    RankWriter writer(folder.path(), {}, 0);
    Schedule schedule({});
    Journal journal(writer, schedule);
    for (int i = 0; i < 2; ++i) {
      journal.fact("wrapper 0", "type", "\"DistributedDataParallel\"");
      journal.site("wrap 0", "train.cpp", 3 + i);
      journal.site("wrap 1", "", 0);
      journal.warn("not examined");
      schedule.next(0, 1);
    }
    journal.fact("wrapper 0", "type", "\"Other\"");
    writer.close();
  }
  const RankRecord record = RecordReader(record_file(folder.path(), 0)).read();
  EXPECT_EQ(record.facts.size(), 2U);
  ASSERT_EQ(record.sites.size(), 1U);
  EXPECT_EQ(record.sites[0].line, 3);
  EXPECT_EQ(record.events.size(), 1U);
}

}  // namespace
}  // namespace ddp_doctor
