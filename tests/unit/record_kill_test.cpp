// SPDX-License-Identifier: BSD-3-Clause
// A record survives the death of its writer: children are killed at random moments, and what they
// had acknowledged must be there.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "lib/error.h"
#include "lib/record/progress.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kTensors = 40;
constexpr int kEvery = 21;  // more than can wait for a transaction

// Every field follows from the number, so that a mixture of two steps would be seen.
StepRecord step_of(std::int64_t number) {
  StepRecord s;
  s.step = number;
  s.loss = static_cast<double>(number);
  s.duration_ns = number;
  s.trace = "F" + std::to_string(number);
  s.examined = number % kEvery == 0;
  if (!s.examined) return s;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    Observation o;
    o.tensor = tensor;
    o.digest.numel = number;
    s.observations.push_back(o);
    s.usages.push_back({tensor, true, true, true, false});
  }
  s.values.push_back({0, Stage::kWeight, std::vector<std::uint8_t>(9000, std::uint8_t(number))});
  return s;
}

void expect_whole_steps(const RecordReader& reader, std::int64_t at_least) {
  const auto steps = reader.read().steps;
  ASSERT_GE(static_cast<std::int64_t>(steps.size()), at_least);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i) + 1;
    ASSERT_EQ(steps[i].step, number);
    ASSERT_EQ(steps[i].duration_ns, number);
    ASSERT_EQ(steps[i].loss, static_cast<double>(number));
    ASSERT_EQ(steps[i].trace, "F" + std::to_string(number));
    ASSERT_EQ(steps[i].examined, number % kEvery == 0);
    if (!steps[i].examined) continue;
    ASSERT_EQ(steps[i].observations.size(), std::size_t(kTensors));
    ASSERT_EQ(steps[i].usages.size(), std::size_t(kTensors));
    for (const Observation& o : steps[i].observations) ASSERT_EQ(o.digest.numel, number);
    const auto values = reader.values(number, 0, Stage::kWeight);
    ASSERT_EQ(values, std::vector<std::uint8_t>(9000, std::uint8_t(number)));
  }
}

// In a child: writes steps until killed, and says after each that it is written.
[[noreturn]] void write_forever(const fs::path& folder) {
  try {
    ProgressWriter progress(progress_file(folder, 0));
    RecordWriter writer(folder, RecordHeader{});
    for (std::int64_t number = 1;; ++number) {
      writer.write_step(step_of(number));
      progress.enter(Phase::kRecording, number);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::_exit(1);
}

void kill_and_check(microseconds delay) {
  const TemporaryFolder folder;
  const fs::path map = progress_file(folder.path(), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) write_forever(folder.path());
  const auto deadline = steady_clock::now() + seconds(20);
  while (read_progress(map).step == 0 && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(microseconds(100));
  }
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::int64_t acknowledged = read_progress(map).step;
  ASSERT_GT(acknowledged, 0);
  const RecordReader reader(record_file(folder.path(), 0));
  expect_whole_steps(reader, acknowledged);
  ASSERT_LE(reader.read().steps.size(), std::size_t(acknowledged) + 1);
}

TEST(KilledWriter, LosesAtMostTheStepUnderWay) {
  std::mt19937 random(20240229);
  for (int round = 0; round < 12 && !testing::Test::HasFatalFailure(); ++round) {
    const microseconds delay(std::uniform_int_distribution<int>(0, 200'000)(random));
    SCOPED_TRACE("round " + std::to_string(round) + ", " + std::to_string(delay.count()) + " us");
    kill_and_check(delay);
  }
}

TEST(KilledWriter, BeforeItsFirstStepLeavesARecordOrNone) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const TemporaryFolder folder;
    const fs::path file = record_file(folder.path(), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_forever(folder.path());
    std::this_thread::sleep_for(microseconds(std::uniform_int_distribution<int>(0, 4000)(random)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (fs::exists(file)) {
      EXPECT_NO_THROW(RecordReader(file).read());
    }
  }
}

// A limit on the size of files fails like a full disk, and anybody may set one.
TEST(FullDisk, LeavesWhatWasWritten) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 18, 1 << 18};  // for fewer steps than an exit status can say
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string message;
    std::int64_t number = 1;
    try {
      RecordWriter writer(folder.path(), RecordHeader{});
      for (;; ++number) writer.write_step(step_of(number));
    } catch (const Error& error) {
      message = error.what();
    }
    const bool named =
        message.find("rank-00000.sqlite") != message.npos &&
        message.find("free some disk space, or choose another folder with --out DIR") !=
            message.npos;
    std::fprintf(stderr, "%s\n", message.c_str());
    ::_exit(named ? static_cast<int>(number - 1) : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  const int written = WEXITSTATUS(status);
  ASSERT_GT(written, 10);
  const RecordReader reader(record_file(folder.path(), 0));
  expect_whole_steps(reader, written);
  EXPECT_EQ(reader.read().steps.size(), std::size_t(written));
}

}  // namespace
}  // namespace ddp_doctor
