// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "lib/error.h"
#include "lib/record/writer.h"
#include "lib/timeline/drift.h"
#include "tests/temporary_folder.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::vector<std::uint8_t> bytes_of(std::vector<T> values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

double max_abs_difference(const std::vector<std::vector<double>>& replicas) {
  Spread spread;
  for (const auto& replica : replicas) spread.add(replica);
  return spread.largest();
}

TEST(Drift, IsTheLargestDifferenceBetweenAnyTwoRanks) {
  EXPECT_EQ(max_abs_difference({{1.0, 5.0}, {1.5, 5.0}, {-1.0, 5.25}}), 2.5);
  EXPECT_EQ(max_abs_difference({{0.0}, {-0.0}}), 0.0);
}

TEST(Drift, TreatsEqualInfinitiesAndSharedNaNAsEqual) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  EXPECT_EQ(max_abs_difference({{inf, nan}, {inf, nan}}), 0.0);
  EXPECT_EQ(max_abs_difference({{inf}, {1.0}}), inf);
  EXPECT_TRUE(std::isnan(max_abs_difference({{1.0}, {nan}})));
}

TEST(Drift, ReadsEveryDType) {
  EXPECT_THAT(to_doubles(bytes_of<float>({1.5f, -2.0f}), DType::kFloat32), ElementsAre(1.5, -2.0));
  EXPECT_THAT(to_doubles(bytes_of<double>({0.1}), DType::kFloat64), ElementsAre(0.1));
  EXPECT_THAT(
      to_doubles(bytes_of<std::uint16_t>({0x3C00, 0xC000, 0x0001, 0x7C00}), DType::kFloat16),
      ElementsAre(1.0, -2.0, std::ldexp(1.0, -24), std::numeric_limits<double>::infinity()));
  EXPECT_THAT(to_doubles(bytes_of<std::uint16_t>({0x3F80, 0xC000}), DType::kBFloat16),
              ElementsAre(1.0, -2.0));
  EXPECT_THAT(to_doubles(bytes_of<std::int8_t>({-7}), DType::kInt8), ElementsAre(-7.0));
  EXPECT_THAT(to_doubles(bytes_of<std::int64_t>({-7, 1 << 30}), DType::kInt64),
              ElementsAre(-7.0, 1073741824.0));
}

TEST(Timeline, SaysWhichRanksMadeNoStepAndWhoDid) {
  RunBuilder run(3, {"w"}, 4);
  run.raise(1, 1, "boom");
  run.raise(2, 1, "boom");
  EXPECT_THAT(run.build().notes, ElementsAre("rank 1, 2 made no optimizer step, rank 0 made 4"));
}

TEST(Timeline, MergesRanksByStepAndSaysWhoEndedEarly) {
  RunBuilder run(3, {"w"}, 4);
  run.raise(1, 3, "boom");
  const Timeline timeline = run.build();
  ASSERT_EQ(timeline.steps.size(), 5u);
  EXPECT_TRUE(timeline.step(2)->complete());
  EXPECT_FALSE(timeline.step(3)->complete());
  EXPECT_EQ(timeline.step(3)->ranks[1], nullptr);
  EXPECT_THAT(timeline.notes, ElementsAre("rank 1 ended after step 2, rank 0 continued to step 4"));
  EXPECT_EQ(timeline.error(1)->text, "boom");
}

TEST(Timeline, GroupsRanksOfEqualBits) {
  RunBuilder run(4, {"w"}, 1);
  run.differ(2, 0, Stage::kGradient, 1);
  const Timeline timeline = run.build();
  EXPECT_THAT(timeline.step(1)->groups(0, Stage::kGradient),
              ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2)));
}

TEST(Timeline, RefusesRecordsOfDifferentRuns) {
  RunBuilder run(2, {"w"}, 1);
  run.record(1).header.world_size = 3;
  EXPECT_THROW(run.build(), Error);
  RunBuilder twice(2, {"w"}, 1);
  twice.record(1).header.rank = 0;
  EXPECT_THROW(twice.build(), Error);
}

// Two ranks on disk, with values.
class TimelineOnDisk : public testing::Test {
 protected:
  void write(int rank, float weight, float local, float gradient, bool values) {
    RecordHeader header;
    header.rank = rank;
    header.world_size = 2;
    RecordWriter writer(folder_.path(), header);
    TensorInfo info;
    info.name = "w";
    info.dtype = "float32";
    info.sizes = {1};
    info.numel = 1;
    writer.write_tensors({info});
    StepRecord step;
    step.step = 1;
    const std::int64_t size = 1, stride = 1;
    for (const auto& [stage, value] : {std::pair(Stage::kWeight, weight),
                                       {Stage::kLocalGradient, local},
                                       {Stage::kGradient, gradient}}) {
      step.observations.push_back(
          {0, stage, digest({&value, DType::kFloat32, {&size, 1}, {&stride, 1}})});
      if (values) step.values.push_back({0, stage, bytes_of<float>({value})});
    }
    writer.write_step(step);
  }
  Timeline load() {
    RunInfo run;
    run.world_size = 2;
    return Timeline::load(folder_.path(), run);
  }
  TemporaryFolder folder_;
};

TEST_F(TimelineOnDisk, GivesTheExactDriftAndTheErrorOfTheMean) {
  write(0, 1.0f, 2.0f, 3.0f, true);
  write(1, 1.25f, 4.0f, 3.0f, true);
  const Timeline timeline = load();
  EXPECT_EQ(timeline.step(1)->weight_drift, 0.25);
  ASSERT_EQ(timeline.step(1)->drifting.size(), 1u);
  ASSERT_TRUE(timeline.mean_check);
  EXPECT_EQ(timeline.mean_check->relative_error, 0.0);
}

TEST_F(TimelineOnDisk, ShowsASumThatShouldHaveBeenAMean) {
  write(0, 1.0f, 2.0f, 6.0f, true);
  write(1, 1.0f, 4.0f, 6.0f, true);
  EXPECT_DOUBLE_EQ(load().mean_check->relative_error, 1.0);
}

TEST_F(TimelineOnDisk, DoesNotGuessADriftItCannotMeasure) {
  write(0, 1.0f, 2.0f, 3.0f, false);
  write(1, 1.25f, 4.0f, 3.0f, false);
  const Timeline timeline = load();
  EXPECT_EQ(timeline.step(1)->weight_drift, std::nullopt);
  EXPECT_EQ(timeline.mean_check, std::nullopt);
}

TEST_F(TimelineOnDisk, KnowsZeroDriftWithoutValues) {
  write(0, 1.0f, 2.0f, 3.0f, false);
  write(1, 1.0f, 4.0f, 3.0f, false);
  EXPECT_EQ(load().step(1)->weight_drift, 0.0);
}

TEST_F(TimelineOnDisk, TakesARankOfWhichNothingIsKnownForOneOfAnotherMachine) {
  write(0, 1.0f, 2.0f, 3.0f, true);
  EXPECT_THAT(load().ranks(), ElementsAre(0));
  EXPECT_FALSE(load().whole());
  EXPECT_THAT(load().notes, testing::IsEmpty());
}

TEST_F(TimelineOnDisk, RefusesAFolderWithoutRecords) {
  try {
    load();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ddp-doctor run --out"));
  }
}

}  // namespace
}  // namespace ddp_doctor

namespace ddp_doctor {
namespace {

TEST(TimelineMerge, KnowsTensorsByNameWhereRanksCountThemDifferently) {
  RunBuilder run(2, {"a", "b"}, 1);
  std::swap(run.record(1).tensors[0].name, run.record(1).tensors[1].name);
  run.record(1).tensors.push_back(run.record(1).tensors[0]);
  run.record(1).tensors.back().id = 2;
  run.record(1).tensors.back().name = "only here";
  run.differ(1, 0, Stage::kGradient, 1);  // rank 1's first tensor: "b"
  const Timeline timeline = run.build();
  ASSERT_EQ(timeline.tensors.size(), 3U);
  EXPECT_EQ(timeline.tensors[2].name, "only here");
  EXPECT_EQ(timeline.step(1)->groups(0, Stage::kGradient).size(), 1U);
  EXPECT_EQ(timeline.step(1)->groups(1, Stage::kGradient).size(), 2U);
}

TEST(TimelineParts, AreOneForEachWrapperWithItsOwnStepsAndCounts) {
  RunBuilder run(2, {"g.weight", "d.weight"}, 2);
  for (int rank = 0; rank < 2; ++rank) {
    for (int wrapper = 0; wrapper < 2; ++wrapper) {
      run.record(rank).tensors[static_cast<std::size_t>(wrapper)].wrapper = wrapper;
      run.record(rank).ddp_fields.push_back({"construction", "world_size", "2", true, wrapper});
      // Step 1 is the first wrapper's, step 2 the second's.
      auto& step = run.step(rank, wrapper + 1);
      std::erase_if(step.usages, [&](const Usage& usage) { return usage.tensor != wrapper; });
      step.trace = wrapper == 0 ? "F0+ F1+ B0+,1+" : "F0+ F1-*2 B1-";
    }
  }
  const auto parts = run.build().parts();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].steps.size(), 2U);  // 0 and 1
  ASSERT_EQ(parts[1].steps.back().number, 2);
  EXPECT_EQ(parts[1].trainable(), std::vector<int>{1});
  const StepRecord& second = *parts[1].steps.back().ranks[0];
  EXPECT_EQ(second.forwards_through_wrapper, 2);
  EXPECT_EQ(second.backwards, 1);
  EXPECT_EQ(second.unsynchronized_backwards, 1);
}

TEST(TimelineParts, AreNoneWhereThereIsOneWrapper) {
  EXPECT_TRUE(RunBuilder(2, {"a", "b"}, 1).wrapper({}).build().parts().empty());
}

TEST(TimelineStep, HasThePlaceOfItsOptimizer) {
  RunBuilder run(2, {"a"}, 4);
  run.wrapper({});
  for (int rank = 0; rank < 2; ++rank) {
    for (const int step : {2, 4}) run.step(rank, step).optimizer = 1;
    run.record(rank).sites = {{"step 0", 1, "gan.py", 5, {}},
                              {"step 1", 2, "gan.py", 9, {}},
                              {"step 1", 4, "gan.py", 12, {}}};
  }
  const Timeline timeline = run.build();
  const auto line = [&](std::optional<std::int64_t> step) {
    return timeline.step_site(step)->line;
  };
  EXPECT_EQ(line({}), 5);
  EXPECT_EQ(line(2), 9);
  EXPECT_EQ(line(3), 5);
  EXPECT_EQ(line(4), 12);
}

TEST(TimelineStep, IsExaminedOnlyIfEveryRankLookedAtItsTensors) {
  RunBuilder run(2, {"a"}, 2);
  run.step(1, 2).examined = false;
  const Timeline timeline = run.build();
  EXPECT_TRUE(timeline.step(1)->examined());
  EXPECT_FALSE(timeline.step(2)->examined());
  EXPECT_TRUE(timeline.step(2)->complete());
}

}  // namespace
}  // namespace ddp_doctor
