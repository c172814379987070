// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/thinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lib/record/progress.h"
#include "lib/record/statement.h"
#include "tests/unit/record_fixture.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::IsSupersetOf;
using testing::Le;

constexpr std::int64_t kBytes = 10;

// The steps that are left of `count`, with room for `most`.
std::set<std::int64_t> left_of(std::int64_t count, std::int64_t most, const Watched& watched = {},
                               std::int64_t unusual = 0) {
  Thinning thinning(most * kBytes);
  std::set<std::int64_t> left;
  for (std::int64_t step = 1; step <= count; ++step) {
    thinning.add(step, kBytes, step == unusual);
    left.insert(step);
    while (const auto old = thinning.next(watched)) EXPECT_EQ(left.erase(*old), 1U) << *old;
  }
  EXPECT_EQ(thinning.forgotten(), count - static_cast<std::int64_t>(left.size()));
  return left;
}

std::set<std::int64_t> steps(std::int64_t first, std::int64_t last) {
  std::set<std::int64_t> all;
  for (; first <= last; ++first) all.insert(first);
  return all;
}

TEST(Thinning, ForgetsNothingWhileThereIsRoom) { EXPECT_EQ(left_of(500, 500).size(), 500U); }

TEST(Thinning, KeepsTheFirstAndTheLatestAndEvenlyOfThoseInBetween) {
  const auto left = left_of(100'000, 500);
  EXPECT_THAT(left.size(), AllOf(Ge(250U), Le(500U)));
  EXPECT_THAT(left, IsSupersetOf(steps(1, Thinning::kFirst)));
  EXPECT_THAT(left, IsSupersetOf(steps(100'001 - Thinning::kLatest, 100'000)));
  std::int64_t before = 0;
  std::int64_t widest = 0;
  for (const auto step : left) {
    widest = std::max(widest, step - before);
    before = step;
  }
  EXPECT_LE(widest,
            1024);  // 100,000 steps in 400 places, rounded up to a power of two, and once more
}

TEST(Thinning, LeavesWhatWasUnusual) {
  EXPECT_TRUE(left_of(10'000, 200, {}, 3'333).contains(3'333));
}

TEST(Thinning, WaitsForWhoeverComparesTheReplicas) {
  EXPECT_EQ(left_of(1'000, 200, {true, 0, {}}).size(), 1'000U);
  const auto left = left_of(1'000, 200, {true, 500, {}});
  EXPECT_THAT(left, IsSupersetOf(steps(501, 1'000)));
  EXPECT_LT(left.size(), 700U);
}

TEST(Thinning, LeavesTheStepsFromWhereReplicasDiffer) {
  const auto left = left_of(10'000, 300, {true, 10'000, 5'001});
  EXPECT_THAT(left, IsSupersetOf(steps(5'000, 5'000 + Thinning::kFinding)));
  EXPECT_LE(left.size(), 300U);  // what follows is thinned again
}

TEST(Thinning, IsTheSameOnEveryRankHoweverFarItIsSeen) {
  EXPECT_EQ(left_of(5'000, 300, {true, 5'000, {}}), left_of(5'000, 300));
}

using ThinnedRecord = RecordTest;

StepRecord examined_step(std::int64_t number) {
  StepRecord step;
  step.step = number;
  step.usages = full_step(1).usages;
  for (int tensor = 0; tensor < 20; ++tensor) {
    auto seen = observation(tensor, Stage::kWeight, 1.0);
    seen.digest.nonfinite = 0;
    std::memcpy(seen.digest.bits.data(), &number, sizeof number);
    step.observations.push_back(seen);
    seen.stage = Stage::kGradient;
    step.observations.push_back(seen);
  }
  return step;
}

TEST_F(ThinnedRecord, StaysBoundedAndReadable) {
  constexpr std::int64_t kMax = 200'000;
  std::uintmax_t half = 0;
  {
    RecordWriter writer(folder_, header(), kMax);
    for (std::int64_t number = 1; number <= 4'000; ++number) {
      writer.write_step(examined_step(number));
      if (number == 2'000) half = fs::file_size(file());
    }
  }
  EXPECT_LT(fs::file_size(file()), half + half / 4);  // only the rows of steps, which are small
  const RankRecord record = RecordReader(file()).read();
  ASSERT_EQ(record.steps.size(), 4'000U);
  std::int64_t examined = 0;
  for (const StepRecord& step : record.steps) {
    if (step.examined) {
      ++examined;
      EXPECT_EQ(step.observations.size(), 40U);
      EXPECT_EQ(step.usages.size(), full_step(1).usages.size());
      EXPECT_EQ(step.observations[0].digest.bits,
                examined_step(step.step).observations[0].digest.bits);
    } else {
      EXPECT_TRUE(step.observations.empty() && step.usages.empty() && step.roots.empty());
    }
  }
  EXPECT_EQ(record.header.details.at("thinned"), std::to_string(4'000 - examined));
  EXPECT_GT(examined, 100);

  const Connection connection(file(), SQLITE_OPEN_READONLY);
  Statement orphans(connection,
                    "SELECT COUNT(*) FROM content WHERE id NOT IN (SELECT content FROM seen)");
  orphans.bind_all();
  ASSERT_TRUE(orphans.next());
  EXPECT_EQ(orphans.integer(0), 0);
}

TEST_F(ThinnedRecord, HearsOfTheWatcherThroughTheProgressMap) {
  fs::create_directories(folder_);
  const auto map = progress_file(folder_, 0);
  const ProgressWriter progress(map);
  EXPECT_FALSE(progress.watched().by_somebody);
  ASSERT_TRUE(tell_watched(map, {true, 40, {}}));
  EXPECT_TRUE(progress.watched().by_somebody);
  EXPECT_EQ(progress.watched().until, 40);
  EXPECT_FALSE(progress.watched().differs_at);
  ASSERT_TRUE(tell_watched(map, {true, 50, 45}));
  EXPECT_EQ(progress.watched().differs_at, 45);
}

}  // namespace
}  // namespace ddp_doctor
