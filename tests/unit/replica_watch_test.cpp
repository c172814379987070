// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/replica_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/record/progress.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;

RecordHeader header_of(int rank) {
  RecordHeader header;
  header.rank = rank;
  header.world_size = 2;
  header.probe = "python";
  return header;
}

// Two ranks at work, with a weight that may differ and one that never does.
class ReplicaWatchTest : public testing::Test {
 protected:
  ReplicaWatchTest() {
    for (auto* writer : {&first_, &second_}) {
      TensorInfo apart{0, "apart", "parameter", "float32", {2}, 2};
      TensorInfo alike{1, "alike", "parameter", "float32", {2}, 2};
      writer->write_tensors({apart, alike});
    }
  }

  void step(std::int64_t number, bool differ, bool with_values = false) {
    for (auto* writer : {&first_, &second_}) {
      const bool second = writer == &second_;
      StepRecord step;
      step.step = number;
      for (int tensor : {0, 1}) {
        TensorDigest digest;
        digest.bits[0] = differ && second && tensor == 0 ? 2 : 1;
        step.observations.push_back({tensor, Stage::kWeight, digest});
      }
      if (with_values) step.values.push_back({0, Stage::kWeight, std::vector<std::uint8_t>(8)});
      writer->write_step(step);
      (second ? second_progress_ : first_progress_).enter(Phase::kBatch, number + 1);
    }
  }

  // Looks are half a second apart.
  void look() {
    std::this_thread::sleep_for(std::chrono::milliseconds(510));
    replicas_.look();
  }

  TemporaryFolder folder_;
  RecordWriter first_{folder_.path(), header_of(0)};
  RecordWriter second_{folder_.path(), header_of(1)};
  ProgressWriter first_progress_{progress_file(folder_.path(), 0)};
  ProgressWriter second_progress_{progress_file(folder_.path(), 1)};
  ReplicaWatch replicas_{folder_.path()};
};

TEST_F(ReplicaWatchTest, AskForNothingWhileReplicasAgree) {
  step(1, false);
  replicas_.look();
  EXPECT_EQ(first_progress_.wanted_step(), 0);
}

TEST_F(ReplicaWatchTest, TellTheRanksHowFarTheyWereCompared) {
  for (int number = 1; number <= 3; ++number) step(number, false);
  replicas_.look();
  EXPECT_TRUE(second_progress_.watched().by_somebody);
  EXPECT_EQ(second_progress_.watched().until, 3);
  EXPECT_FALSE(second_progress_.watched().differs_at);
  step(4, false);
  step(5, true);
  step(6, true);
  look();
  EXPECT_EQ(first_progress_.watched().until, 6);
  EXPECT_EQ(first_progress_.watched().differs_at, 5);
}

TEST_F(ReplicaWatchTest, NameAStepAheadAndTheParametersThatDiffer) {
  step(1, true);
  replicas_.look();
  EXPECT_EQ(first_progress_.wanted_step(), 4);  // both are in step 2
  EXPECT_EQ(second_progress_.wanted_step(), 4);
  const auto request = nlohmann::json::parse(std::ifstream(folder_.path() / "values.json"));
  EXPECT_THAT(request.at("parameters"), ElementsAre("apart"));
  EXPECT_EQ(request.at("step"), 4);
}

TEST_F(ReplicaWatchTest, AreRepeatedForALaterStepUntilTheyAreAnsweredAndThenRest) {
  step(1, true);
  replicas_.look();
  for (int number : {2, 3, 4, 5}) step(number, true);  // step 4 went by unnoticed
  look();
  const auto asked = first_progress_.wanted_step();
  EXPECT_GT(asked, 6);
  for (std::int64_t number = 6; number <= asked; ++number) step(number, true, number == asked);
  look();
  step(asked + 1, true);
  look();
  EXPECT_EQ(first_progress_.wanted_step(), asked) << "answered: the next one is twice as far";
}

}  // namespace
}  // namespace ddp_doctor
