// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/waiting_steps.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lib/record/statement.h"
#include "tests/unit/record_fixture.h"

namespace ddp_doctor {
namespace {

using WaitingStepsTest = RecordTest;

StepRecord step_in_between(std::int64_t number) {
  StepRecord step;
  step.step = number;
  step.examined = false;
  step.backwards = 2;
  step.skipped = number % 2 == 0;
  if (number % 2 == 0) step.loss = kNan;
  if (number % 3 == 0) step.scale = 0.5;
  step.trace = "F0+ B0+*" + std::to_string(number);
  return step;
}

TEST_F(WaitingStepsTest, NeedNoTransactionAndAreRead) {
  const auto rows = [&] {
    const Connection connection(file(), SQLITE_OPEN_READONLY);
    Statement row(connection, "SELECT COUNT(*) FROM step");
    row.bind_all();
    return row.next() ? row.integer(0) : -1;
  };
  {
    RecordWriter writer(folder_, header());
    writer.write_step(full_step(1));
    for (int number = 2; number <= 9; ++number) writer.write_step(step_in_between(number));
    EXPECT_EQ(rows(), 1);
    const auto steps = RecordReader(file()).read().steps;
    ASSERT_EQ(steps.size(), 9U);
    for (int number = 2; number <= 9; ++number)
      expect_same(steps[static_cast<std::size_t>(number) - 1], step_in_between(number));

    StepRecord long_trace = step_in_between(10);
    long_trace.trace.resize(1000, 'N');
    writer.write_step(long_trace);
    EXPECT_EQ(rows(), 10);
    EXPECT_EQ(RecordReader(file()).read().steps.back().trace.size(), 1000U);
    for (int number = 11; number <= 40; ++number) writer.write_step(step_in_between(number));
    EXPECT_EQ(RecordReader(file()).read().steps.size(), 40U);
  }
  EXPECT_EQ(rows(), 40);
  EXPECT_FALSE(fs::exists(steps_file(folder_, 0)));
}

TEST_F(WaitingStepsTest, AreLeftOutWhereTheyDoNotFollow) {
  write_record(1);
  const RecordReader reader(file());
  {
    WaitingSteps waiting(steps_file(folder_, 0));
    waiting.add(step_in_between(3));
    EXPECT_EQ(reader.read().steps.size(), 1U);
    waiting.add(step_in_between(2));
    waiting.add(step_in_between(1));
  }
  EXPECT_EQ(reader.read().steps.size(), 3U);
  fs::resize_file(steps_file(folder_, 0), 100);
  EXPECT_EQ(reader.read().steps.size(), 1U);
}

TEST_F(WaitingStepsTest, AreReadFromDamagedFiles) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  for (const int value : {0x00, 0x01, 0x8e, 0xff}) {
    std::ofstream(steps_file(folder_, 0), std::ios::binary)
        << std::string(WaitingSteps::kBytes, static_cast<char>(value));
    const auto steps = read_waiting_steps(steps_file(folder_, 0), kLowest);
    EXPECT_EQ(steps.size(), value == 0x01 ? 1U : 0U) << value;
  }
  WaitingSteps(steps_file(folder_, 0)).add(step_in_between(1));
  std::fstream file(steps_file(folder_, 0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);  // behind the number
  file << std::string(400, '\x8e');
  file.close();
  const auto steps = read_waiting_steps(steps_file(folder_, 0), kLowest);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_TRUE(steps.front().skipped);
  EXPECT_TRUE(steps.front().loss.has_value());
}

}  // namespace
}  // namespace ddp_doctor
