// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

LoggedCall all_reduce(std::int64_t position) {
  LoggedCall call;
  call.position = position;
  call.step = 7;
  call.numel = 40;
  call.line = 12;
  call.op = "all_reduce";
  call.reduce = "sum";
  call.dtype = "float32";
  call.group = "0,1";
  call.moment = "before-step";
  call.target = "gradient of body.weight";
  call.file = "train.py";
  return call;
}

class CallLogFile : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "rank-00000.calls";
};

TEST_F(CallLogFile, HasWhatReturnedAndWhatDidNot) {
  CallLog log(file_);
  log.end(log.begin(all_reduce(1)));
  log.begin(all_reduce(2));
  const auto calls = read_calls(file_);  // while it is being written
  ASSERT_THAT(calls, SizeIs(2));
  EXPECT_EQ(calls[0].number, 1);
  EXPECT_EQ(calls[0].position, 1);
  EXPECT_EQ(calls[0].step, 7);
  EXPECT_EQ(calls[0].numel, 40);
  EXPECT_EQ(calls[0].line, 12);
  EXPECT_EQ(calls[0].op, "all_reduce");
  EXPECT_EQ(calls[0].reduce, "sum");
  EXPECT_EQ(calls[0].dtype, "float32");
  EXPECT_EQ(calls[0].group, "0,1");
  EXPECT_EQ(calls[0].moment, "before-step");
  EXPECT_EQ(calls[0].target, "gradient of body.weight");
  EXPECT_EQ(calls[0].file, "train.py");
  EXPECT_GE(calls[0].end_ns, calls[0].begin_ns);
  EXPECT_GT(calls[0].begin_ns, 0);
  EXPECT_EQ(calls[1].end_ns, 0);
}

TEST_F(CallLogFile, KeepsTheLastOnes) {
  CallLog log(file_);
  for (std::int64_t i = 1; i <= CallLog::kCapacity + 5; ++i) log.end(log.begin(all_reduce(i)));
  log.end(1);  // overwritten long ago by another entry
  const auto calls = read_calls(file_);
  ASSERT_THAT(calls, SizeIs(CallLog::kCapacity));
  EXPECT_EQ(calls.front().number, 6);
  EXPECT_EQ(calls.back().number, CallLog::kCapacity + 5);
}

TEST_F(CallLogFile, CutsLongTextsAndKeepsTheEndOfAPath) {
  CallLog log(file_);
  LoggedCall call = all_reduce(1);
  call.target = std::string(500, 't');
  call.file = std::string(500, '/') + "train.py";
  log.begin(call);
  const auto calls = read_calls(file_);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0].target, std::string(calls[0].target.size(), 't'));
  EXPECT_TRUE(calls[0].file.ends_with("/train.py"));
}

TEST_F(CallLogFile, ReadsAsEmptyWhereThereIsNone) {
  EXPECT_THAT(read_calls(file_), IsEmpty());
  std::ofstream(file_) << "no log";
  EXPECT_THAT(read_calls(file_), IsEmpty());
  { const CallLog log(file_); }
  EXPECT_THAT(read_calls(file_), IsEmpty());
  std::filesystem::resize_file(file_, 1000);
  EXPECT_THAT(read_calls(file_), IsEmpty());
}

}  // namespace
}  // namespace ddp_doctor
