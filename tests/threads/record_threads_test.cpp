// SPDX-License-Identifier: BSD-3-Clause
// What several threads of a rank do at once: the training loop, autograd's, a data loader's, and
// the watcher outside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "lib/record/rank_writer.h"
#include "lib/recorder/probe_api.h"
#include "tests/unit/record_fixture.h"

namespace ddp_doctor {
namespace {

TEST_F(RecordTest, IsReadWhileItIsWritten) {
  RecordWriter writer(folder_, header());
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> written = 0;
  std::thread training([&] {
    StepRecord step = full_step(1);
    step.values[0].bytes.resize(20'000);  // enough for checkpoints to happen on the way
    for (; step.step <= 400 && !stop; ++step.step) {
      writer.write_step(step);
      written = step.step;
    }
    stop = true;
  });
  const RecordReader reader(file());  // one that stays, and new ones
  try {
    while (!stop) {
      const std::int64_t at_least = written;
      for (const RankRecord& record : {reader.read(), RecordReader(file()).read()}) {
        const auto count = static_cast<std::int64_t>(record.steps.size());
        EXPECT_GE(count, at_least);
        if (count == 0) continue;
        EXPECT_EQ(record.steps.back().step, count);
        EXPECT_EQ(record.steps.back().observations.size(), 5U);
        EXPECT_EQ(record.steps.back().usages.size(), 4U);
      }
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  stop = true;
  training.join();
  EXPECT_EQ(written, 400);
}

TEST_F(RecordTest, IsWrittenByThreadsAtOnce) {
  constexpr int kSteps = 50;
  constexpr int kThreads = 3;
  RankWriter writer(folder_, header(), 1 << 20);
  TensorInfo tensor;
  tensor.dtype = "float32";
  tensor.sizes = {4};
  std::vector<TensorInfo> tensors;
  for (tensor.id = 0; tensor.id < kThreads; ++tensor.id) tensors.push_back(tensor);
  writer.describe(tensors);

  const std::array<float, 4> gradient = {1, 2, 3, 4};
  const std::array<std::int64_t, 1> sizes = {4}, strides = {1};
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<std::thread> backward;
    for (int thread = 0; thread < kThreads; ++thread) {
      backward.emplace_back([&, thread] {
        LoggedCall call;
        call.op = "all_reduce";
        writer.enter(Phase::kBackward, step);
        const auto number = writer.call_begins(call, true);
        writer.observe(Stage::kGradient, take::kDigest | take::kSample | take::kKeep, thread,
                       {gradient.data(), DType::kFloat32, sizes, strides});
        writer.call_ends(number);
      });
    }
    for (auto& thread : backward) thread.join();
    StepRecord trained;
    trained.step = step;
    writer.write_step(trained);
  }
  writer.close();

  const RankRecord record = RecordReader(file()).read();
  ASSERT_EQ(record.steps.size(), kSteps);
  for (const auto& step : record.steps) EXPECT_EQ(step.observations.size(), kThreads);
  const auto calls = read_calls(folder_ / "rank-00000.calls");
  ASSERT_EQ(calls.size(), kSteps * kThreads);
  for (std::size_t i = 0; i < calls.size(); ++i)
    EXPECT_EQ(calls[i].position, static_cast<std::int64_t>(i) + 1);
}

TEST(ProbeApiThreads, EachReadsItsOwnError) {
  std::vector<std::thread> threads;
  std::array<std::string, 4> errors;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::string folder = "/proc/none-" + std::to_string(i);
      EXPECT_EQ(
          ddpd_open(folder.c_str(),
                    R"({"rank":0,"world_size":1,"probe":"python","program":"t.py","details":{}})",
                    0),
          nullptr);
      errors[i] = ddpd_error();
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < errors.size(); ++i)
    EXPECT_THAT(errors[i], testing::HasSubstr("/proc/none-" + std::to_string(i)));
}

}  // namespace
}  // namespace ddp_doctor
