// SPDX-License-Identifier: BSD-3-Clause
// The C API as a probe in another language uses it.

#include "lib/recorder/probe_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "lib/record/call_log.h"
#include "lib/record/progress.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "lib/recorder/probe_record.h"
#include "tests/probe_step.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kHeader[] =
    R"({"rank":1,"world_size":2,"probe":"python","program":"t.py","details":{"torch_version":"2.0"}})";
constexpr char kTensors[] =
    R"([{"id":0,"name":"w","kind":"parameter","dtype":"float32","sizes":[2,2],"trainable":true,"ddp_index":0,"wrapper":0},
        {"id":1,"name":"b","kind":"parameter","dtype":"float32","sizes":[2],"trainable":false,"ddp_index":null,"wrapper":null}])";

class ProbeApi : public testing::Test {
 protected:
  ddpd_record* open(std::int64_t budget = 1 << 20) {
    ddpd_record* record = ddpd_open(folder_.path().c_str(), kHeader, budget);
    EXPECT_NE(record, nullptr) << ddpd_error();
    EXPECT_EQ(ddpd_tensors(record, kTensors), 0) << ddpd_error();
    return record;
  }
  void observe(ddpd_record* record, Stage stage, int what) {
    const std::int32_t ids[] = {0, 1};
    const void* data[] = {weight_.data(), bias_.data()};
    ASSERT_EQ(ddpd_observe(record, static_cast<int>(stage), what, 2, ids, data), 0) << ddpd_error();
  }
  RankRecord read() const { return RecordReader(record_file(folder_.path(), 1)).read(); }

  TemporaryFolder folder_;
  std::array<float, 4> weight_ = {1, 2, 3, 4};
  std::array<float, 2> bias_ = {3, 4};
};

TEST_F(ProbeApi, WritesAStepWithWhatWasObservedInIt) {
  ddpd_record* record = open();
  observe(record, Stage::kGradient, DDPD_DIGEST | DDPD_SAMPLE);
  ddpd_wrapper_made(record, ddpd_wrapper_begins(record), 1, "");
  ddpd_forward_begins(record, 0, 1);
  ddpd_forward_ends(record, 0);
  ddpd_backward_begins(record, "t.py", 2, DDPD_DIGEST);
  ddpd_loss(record, std::nan(""));
  Parameter reduced, used;
  reduced.in_wrapper = reduced.in_reducer = 0;
  EXPECT_FALSE(ddpd_is_still_local(record, &reduced));
  EXPECT_TRUE(ddpd_gradient_arrives(record, &reduced));
  EXPECT_FALSE(ddpd_backward_ends(record, 0, 0, 1));
  EXPECT_EQ(ddpd_backward_of(record, 0), DDPD_TOUCHED | DDPD_SYNCHRONIZED);
  for (int i = 0; i < 2; ++i)
    ddpd_call_ends(record, ddpd_collective(record, 1, "barrier", "", "", 0, 0, "", "",
                                           ddpd_moment(record), "", "t.py", 3));
  const int optimizer = ddpd_optimizer(record);
  void* held[] = {&reduced, &used};
  ddpd_optimizer_holds(record, optimizer, 1, held);
  used.in_wrapper = 1;
  std::int32_t ids[2] = {};
  EXPECT_EQ(ddpd_cover(record, optimizer, 1, &held[1], 1, held, ids), 1);
  EXPECT_TRUE(ddpd_step_begins(record));
  ddpd_gradients_taken(record);
  EXPECT_TRUE(ddpd_step_ends(record));
  const ddpd_row row{
      .started_ns = 5, .duration_ns = 6, .scale = 8, .optimizer = optimizer, .skipped = 0};
  ddpd_usages(record, optimizer);
  ddpd_take_row(record, &row);
  ASSERT_EQ(ddpd_write_row(record, 1, 7), 0) << ddpd_error();
  ddpd_step_closed(record, optimizer);
  EXPECT_EQ(ddpd_step_number(record), 2);
  ddpd_close(record);

  const RankRecord read_back = read();
  EXPECT_EQ(read_back.header.rank, 1);
  ASSERT_THAT(read_back.tensors, SizeIs(2));
  EXPECT_EQ(read_back.tensors[0].numel, 4);
  EXPECT_EQ(read_back.tensors[0].wrapper, 0);
  EXPECT_FALSE(read_back.tensors[1].wrapper);
  ASSERT_THAT(read_back.steps, SizeIs(1));
  const StepRecord& step = read_back.steps[0];
  EXPECT_TRUE(std::isnan(*step.loss));
  EXPECT_EQ(step.trace, "F0+ B0+ C*2");
  ASSERT_THAT(step.observations, SizeIs(2));
  EXPECT_EQ(step.observations[1].digest.l2_norm, 5.0);
  EXPECT_THAT(step.samples[0].values, ElementsAre(1, 2, 3, 4));
  ASSERT_THAT(step.usages, SizeIs(1));
  EXPECT_TRUE(step.usages[0].used && step.usages[0].in_optimizer);
  EXPECT_EQ(step.backwards, 1);
  EXPECT_EQ(step.scale, 8);
  EXPECT_EQ(step.probe_ns, 7);
  EXPECT_EQ(step.calls[0].count, 2);
}

TEST_F(ProbeApi, SeesATensorOnlyOnceAtAStage) {
  ddpd_record* record = open();
  observe(record, Stage::kGradient, DDPD_DIGEST);
  bias_ = {6, 8};
  observe(record, Stage::kGradient, DDPD_DIGEST);
  ASSERT_EQ(write_step(record), 0);
  ASSERT_EQ(write_step(record), 0);
  ddpd_close(record);
  const auto steps = read().steps;
  ASSERT_THAT(steps[0].observations, SizeIs(2));
  EXPECT_EQ(steps[0].observations[1].digest.l2_norm, 10.0);
  EXPECT_THAT(steps[1].observations, IsEmpty());
}

TEST_F(ProbeApi, NoticesAChangeAfterTheReductionThatNoSampleShows) {
  ddpd_record* record = open();
  ASSERT_EQ(
      ddpd_tensors(
          record,
          R"([{"id":2,"name":"c","kind":"parameter","dtype":"float32","sizes":[1000],"trainable":true,
                                      "ddp_index":1,"wrapper":0}])"),
      0);
  std::array<float, 1000> large{};
  const std::int32_t id = 2;
  const void* data = large.data();
  const auto look = [&](Stage stage) {
    return ddpd_observe(record, static_cast<int>(stage), DDPD_DIGEST | DDPD_SAMPLE, 1, &id, &data);
  };
  ASSERT_EQ(look(Stage::kReducedGradient), 0);
  large[1] = 5;
  ASSERT_EQ(look(Stage::kGradient), 0);
  ASSERT_EQ(write_step(record), 0);
  ddpd_close(record);
  const auto steps = read().steps;
  ASSERT_THAT(steps[0].observations, SizeIs(2));
  EXPECT_THAT(steps[0].samples[0].values, Eq(steps[0].samples[1].values));
  EXPECT_EQ(steps[0].observations[0].digest.l2_norm, 5.0);  // kGradient stands first
  EXPECT_EQ(steps[0].observations[1].digest.l2_norm, 0.0);
}

TEST_F(ProbeApi, SwapKeepsAnotherStepsObservationsApart) {
  ddpd_record* record = open();
  observe(record, Stage::kLocalGradient, DDPD_DIGEST);
  ddpd_swap(record);
  observe(record, Stage::kWeight, DDPD_DIGEST);
  ASSERT_EQ(write_step_0(record), 0);
  ddpd_swap(record);
  ASSERT_EQ(write_step(record), 0);
  ddpd_close(record);
  const auto steps = read().steps;
  EXPECT_EQ(steps[0].observations.at(0).stage, Stage::kWeight);
  EXPECT_EQ(steps[1].observations.at(0).stage, Stage::kLocalGradient);
}

TEST_F(ProbeApi, KeepsValuesWithinTheBudgetAndSparesHalfOfItForTheEnd) {
  ddpd_record* record = open(2 * 24);  // twice both tensors
  for (int step = 1; step <= 3; ++step) {
    observe(record, Stage::kWeight, DDPD_DIGEST | (step == 3 ? DDPD_KEEP_LAST : DDPD_KEEP));
    ASSERT_EQ(write_step(record), 0);
  }
  ddpd_close(record);
  const RecordReader reader(record_file(folder_.path(), 1));
  EXPECT_THAT(reader.values(1, 0, Stage::kWeight), SizeIs(16));
  EXPECT_THAT(reader.values(2, 0, Stage::kWeight), IsEmpty());
  EXPECT_THAT(reader.values(3, 0, Stage::kWeight), SizeIs(16));
}

TEST_F(ProbeApi, ReadsStridedViews) {
  ddpd_record* record = open();
  const std::int64_t sizes[] = {2, 2};
  const std::int64_t strides[] = {1, 2};  // transposed
  ASSERT_EQ(ddpd_observe_view(record, static_cast<int>(Stage::kWeight), DDPD_DIGEST | DDPD_SAMPLE,
                              0, weight_.data(), "float32", 2, sizes, strides),
            0);
  ASSERT_EQ(write_step(record), 0);
  ddpd_close(record);
  EXPECT_THAT(read().steps[0].samples[0].values, ElementsAre(1, 3, 2, 4));
}

TEST_F(ProbeApi, WritesEventsSitesFactsAndFields) {
  ddpd_record* record = open();
  EXPECT_EQ(ddpd_write(record, "event",
                       R"({"step":2,"time_ns":5,"kind":"error","phase":"forward","text":"no"})"),
            0);
  EXPECT_EQ(ddpd_write(
                record, "site",
                R"({"what":"wrap 0","step":1,"file":"t.py","line":4,"via":["a/b.py:1","c.py:2"]})"),
            0);
  EXPECT_EQ(
      ddpd_write(record, "fact", R"({"step":1,"subject":"wrapper 0","key":"ranks","value":[0,1]})"),
      0);
  EXPECT_EQ(
      ddpd_write(
          record, "ddp_fields",
          R"([{"moment":"construction","key":"k","value":"1","is_integer":true,"wrapper":3}])"),
      0);
  ddpd_enter(record, static_cast<int>(Phase::kForward), 7);
  ddpd_close(record);
  const RankRecord all = read();
  EXPECT_EQ(all.events.at(0).text, "no");
  EXPECT_THAT(all.sites.at(0).via, ElementsAre("a/b.py:1", "c.py:2"));
  EXPECT_EQ(all.facts.at(0).value, "[0,1]");
  EXPECT_EQ(all.ddp_fields.at(0).wrapper, 3);
  EXPECT_EQ(read_progress(progress_file(folder_.path(), 1)).step, 7);
}

TEST_F(ProbeApi, CountsPairedCallsInEachGroup) {
  ddpd_record* record = open();
  const auto call = [&](int paired, const char* group) {
    return ddpd_call_begins(record, 1, paired, "barrier", "", "", 0, group, "outside", "", "t.py",
                            3);
  };
  ddpd_call_ends(record, call(1, ""));
  ddpd_call_ends(record, call(0, ""));
  ddpd_call_ends(record, call(1, "0,1"));
  EXPECT_EQ(call(1, ""), 4);
  std::vector<std::int64_t> positions;
  for (const auto& logged : read_calls(calls_file(folder_.path(), 1)))
    positions.push_back(logged.position);
  EXPECT_THAT(positions, ElementsAre(1, 0, 1, 2));
  ddpd_close(record);
}

TEST_F(ProbeApi, SaysWhyAndGoesOn) {
  ddpd_record* record = open();
  EXPECT_NE(ddpd_write(record, "fact", "{"), 0);
  EXPECT_NE(ddpd_write(record, "poem", "{}"), 0);
  EXPECT_THAT(ddpd_error(), HasSubstr("poem"));
  const std::int32_t unknown[] = {9};
  const void* data[] = {weight_.data()};
  EXPECT_NE(ddpd_observe(record, 1, DDPD_DIGEST, 1, unknown, data), 0);
  EXPECT_EQ(write_step(record), 0);
  ddpd_close(record);
  EXPECT_THAT(read().steps, SizeIs(1));
}

TEST_F(ProbeApi, RefusesASecondRecordOfTheSameRank) {
  ddpd_record* record = open();
  EXPECT_EQ(ddpd_open(folder_.path().c_str(), kHeader, 0), nullptr);
  EXPECT_THAT(ddpd_error(), HasSubstr("already exists"));
  ddpd_close(record);
}

TEST_F(ProbeApi, LeavesTheRecordAloneInAForkedProcess) {
  ddpd_record* record = open();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = write_step(record) != 0;
    ddpd_close(record);
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(write_step(record), 0) << ddpd_error();
  ddpd_close(record);
  EXPECT_THAT(read().steps, SizeIs(1));
}

}  // namespace
}  // namespace ddp_doctor
