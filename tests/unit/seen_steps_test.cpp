// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/seen_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "lib/record/reader.h"
#include "lib/record/statement.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

constexpr int kRanks = 3;
constexpr int kTensors = 4;
constexpr int kSteps = 100;

// Weights are the same on every rank but for tensor 2 of rank 1 from step 50 on; local gradients
// never are; rank 2 numbers its tensors the other way round, and does not use the first one.
TensorDigest digest_of(int rank, int tensor, int step, Stage stage) {
  TensorDigest digest;
  const bool differs = stage == Stage::kLocalGradient || (rank == 1 && tensor == 2 && step >= 50);
  digest.bits = {static_cast<std::uint8_t>(step), static_cast<std::uint8_t>(tensor),
                 static_cast<std::uint8_t>(stage), static_cast<std::uint8_t>(differs ? rank : 9)};
  digest.numel = 64;
  return digest;
}

int own_id(int rank, int tensor) { return rank == 2 ? kTensors - 1 - tensor : tensor; }

class SeenStepsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < kRanks; ++rank) {
      RecordHeader header;
      header.rank = rank;
      header.world_size = kRanks;
      RecordWriter writer(folder_.path(), header);
      for (int number = 1; number <= kSteps; ++number) {
        StepRecord step;
        step.step = number;
        for (int tensor = 0; tensor < kTensors; ++tensor) {
          for (const Stage stage : {Stage::kWeight, Stage::kLocalGradient}) {
            step.observations.push_back(
                {own_id(rank, tensor), stage, digest_of(rank, tensor, number, stage)});
          }
          step.usages.push_back({own_id(rank, tensor), rank != 2 || tensor != 0});
        }
        writer.write_step(step);
      }
      writer.close();
      const auto file = record_file(folder_.path(), rank);
      records_.push_back(RecordReader(file).read_outline());
      files_[rank] = file;
      for (int own = 0; own < kTensors; ++own) ids_[rank].push_back(own_id(rank, own));
    }
  }

  // All steps, from the records.
  std::vector<StepDetails*> add_all(SeenSteps& seen) const {
    std::vector<StepDetails*> details;
    for (std::size_t i = 0; i < kSteps; ++i) {
      std::vector<const StepRecord*> by_rank;
      for (const auto& record : records_) by_rank.push_back(&record.steps[i]);
      details.push_back(seen.add(by_rank));
    }
    return details;
  }

  TemporaryFolder folder_;
  std::vector<RankRecord> records_;
  std::map<int, std::filesystem::path> files_;
  std::map<int, std::vector<int>> ids_;
};

TEST_F(SeenStepsTest, ReadsWhatIsAskedForInAnyOrderAndHowLittleMayBeHeld) {
  for (const std::size_t most_held : {SeenSteps::kMaxHeld, std::size_t{3000}, std::size_t{0}}) {
    SeenSteps seen(ids_, 0, kRanks, kTensors, files_, most_held);
    const auto details = add_all(seen);
    for (int i = 0; i < 3 * kSteps; ++i) {
      const int number = 1 + 37 * i % kSteps;
      const auto& step = *details[static_cast<std::size_t>(number - 1)];
      const int rank = i % kRanks;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        for (const Stage stage : {Stage::kWeight, Stage::kLocalGradient}) {
          const auto digest = step.digest(rank, tensor, stage);
          ASSERT_TRUE(digest);
          EXPECT_EQ(digest->bits, digest_of(rank, tensor, number, stage).bits);
        }
        EXPECT_FALSE(step.digest(rank, tensor, Stage::kGradient));
        EXPECT_EQ(step.usage(rank, tensor)->used, rank != 2 || tensor != 0);
        EXPECT_EQ(step.usage(rank, tensor)->tensor, tensor);
      }
    }
  }
}

// A record with a log would take three files for each rank: of a large job that was killed, too
// many.
TEST_F(SeenStepsTest, KeepsRecordsOpenThatTheirWritersClosed) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto kept_open = [&] {
    SeenSteps seen(ids_, 0, kRanks, kTensors, files_);
    const auto details = add_all(seen);
    const auto before = open_files();
    EXPECT_TRUE(details.front()->digest(0, 0, Stage::kLocalGradient));
    return open_files() - before;
  };
  EXPECT_EQ(kept_open(), kRanks);
  Connection(files_.at(1), SQLITE_OPEN_READWRITE).run("PRAGMA journal_mode = WAL");
  EXPECT_EQ(kept_open(), kRanks - 1);
}

TEST_F(SeenStepsTest, TellsFromTheRootsAloneWhoSawTheSame) {
  ids_.erase(2);
  SeenSteps two(ids_, 0, 2, kTensors, {});  // no file: nothing can be read
  std::vector<const StepRecord*> by_rank = {&records_[0].steps[48], &records_[1].steps[48]};
  const auto* before = two.add(by_rank);
  EXPECT_TRUE(before->same_everywhere({Seen::kDigests, Stage::kWeight}, {0, 1}));
  EXPECT_TRUE(before->same_everywhere({Seen::kUsages, Stage{}}, {0, 1}));
  EXPECT_FALSE(before->same_everywhere({Seen::kDigests, Stage::kLocalGradient}, {0, 1}));
  EXPECT_FALSE(before->any({Seen::kDigests, Stage::kGradient}));
  by_rank = {&records_[0].steps[49], &records_[1].steps[49]};
  EXPECT_FALSE(two.add(by_rank)->same_everywhere({Seen::kDigests, Stage::kWeight}, {0, 1}));
  by_rank = {&records_[0].steps[48], nullptr};
  EXPECT_FALSE(two.add(by_rank)->same_everywhere({Seen::kDigests, Stage::kWeight}, {0, 1}));
  EXPECT_EQ(two.add(std::vector<const StepRecord*>(2)), nullptr);
}

}  // namespace
}  // namespace ddp_doctor
