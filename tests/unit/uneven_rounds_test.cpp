// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/uneven_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A rank that takes so many steps in each round, after five collectives.
RankRecord record(const std::vector<int>& steps_of_rounds) {
  RankRecord record;
  record.steps.emplace_back();  // before training
  std::int64_t number = 0;
  for (const int steps : steps_of_rounds) {
    for (int i = 0; i < steps; ++i) {
      StepRecord step;
      step.step = ++number;
      step.collectives = i == 0 && number > 1 ? 5 : 0;
      record.steps.push_back(step);
    }
  }
  return record;
}

std::vector<std::int64_t> recorded(const RankRecord& record) {
  std::vector<std::int64_t> numbers;
  for (const auto& step : record.steps) numbers.push_back(step.recorded_step.value_or(step.step));
  return numbers;
}

TEST(UnevenRounds, KeepsOfEachRoundWhatEveryRankTook) {
  std::vector records = {record({3, 3, 3}), record({2, 1, 2})};
  const auto note = keep_even_rounds(records);
  ASSERT_TRUE(note);
  EXPECT_THAT(*note, HasSubstr("in 3 of 3 rounds"));
  EXPECT_THAT(recorded(records[0]), ElementsAre(0, 1, 2, 4, 7, 8));
  EXPECT_THAT(recorded(records[1]), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(records[0].steps.back().step, 5);
}

TEST(UnevenRounds, LeavesEvenOnesAndWhatIsNoRound) {
  std::vector even = {record({3, 3, 3}), record({3, 3, 3})};
  EXPECT_FALSE(keep_even_rounds(even));
  EXPECT_EQ(even[0].steps.size(), 10U);
  std::vector once = {record({1, 1, 1, 1}),
                      record({1, 2, 1, 1})};  // a step too many, which is a bug
  EXPECT_FALSE(keep_even_rounds(once));
  std::vector other = {record({3, 3, 3}), record({2, 2, 2})};
  other[1].steps[3].collectives = 1;  // not what rank 0 called
  EXPECT_FALSE(keep_even_rounds(other));
}

TEST(UnevenRounds, AreNotLookedForBesideWrappers) {
  std::vector records = {record({3, 3, 3}), record({2, 2, 2})};
  records[0].ddp_fields.push_back({"construction", "world_size", "2"});
  EXPECT_FALSE(keep_even_rounds(records));
}

}  // namespace
}  // namespace ddp_doctor
