// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/private_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TensorInfo tensor(int id, const std::string& name, std::int64_t size, std::optional<int> wrapper) {
  TensorInfo info;
  info.id = id;
  info.name = name;
  info.sizes = {size};
  info.wrapper = wrapper;
  return info;
}

StepRecord step(std::int64_t number, int optimizer) {
  StepRecord record;
  record.step = number;
  record.optimizer = optimizer;
  return record;
}

// Rank 0 fits two tensors of its own in steps 1, 2 and 4; steps 3 and 5 are everybody's.
std::vector<RankRecord> records() {
  RankRecord zero;
  zero.tensors = {tensor(0, "Probe:a", 3, {}), tensor(1, "Net:w", 7, 0), tensor(2, "Net:b", 2, 0)};
  zero.steps = {step(0, 0), step(1, 0), step(2, 0), step(3, 1), step(4, 0), step(5, 1)};
  zero.facts = {{1, "optimizer 0", "tensors", "[0]"}, {3, "optimizer 1", "tensors", "[1, 2]"}};
  zero.sites = {{"step 0", 1, "t.py", 1, {}}, {"step 1", 3, "t.py", 9, {}}};
  zero.events = {{6, 0, "error", "", "late"}};
  RankRecord one;
  one.header.rank = 1;
  one.tensors = {tensor(0, "w", 7, 0), tensor(1, "b", 2, 0)};
  one.steps = {step(0, 0), step(1, 0), step(2, 0)};
  one.facts = {{1, "optimizer 0", "tensors", "[0, 1]"}};
  return {zero, one};
}

TEST(PrivateSteps, AreLeftOutAndTheRestIsCountedAsByTheOthers) {
  auto all = records();
  EXPECT_THAT(leave_out_private_steps(all),
              ElementsAre("rank 0 took 3 steps with an optimizer that some ranks do not have: "
                          "these steps are not compared"));
  const auto& zero = all[0];
  ASSERT_THAT(zero.steps, SizeIs(3));
  EXPECT_EQ(zero.steps[1].step, 1);
  EXPECT_EQ(zero.steps[1].recorded_step, 3);
  EXPECT_EQ(zero.steps[2].step, 2);
  EXPECT_EQ(zero.steps[2].optimizer, 0);
  EXPECT_EQ(zero.tensors[0].kind, "private");
  EXPECT_EQ(zero.tensors[1].name, "w");
  ASSERT_THAT(zero.facts, SizeIs(1));
  EXPECT_EQ(zero.facts[0].subject, "optimizer 0");
  EXPECT_EQ(zero.facts[0].step, 1);
  ASSERT_THAT(zero.sites, SizeIs(1));
  EXPECT_EQ(zero.sites[0].what, "step 0");
  EXPECT_EQ(zero.events[0].step, 3);
  EXPECT_THAT(all[1].steps, SizeIs(3));
}

TEST(PrivateSteps, AreNoneWhereTheOptimizerHoldsWhatIsWrapped) {
  auto all = records();
  all[0].tensors[0].wrapper = 0;
  EXPECT_THAT(leave_out_private_steps(all), IsEmpty());
  EXPECT_THAT(all[0].steps, SizeIs(6));
}

TEST(PrivateSteps, AreNoneWhereTheOtherRankHasTheParameterToo) {
  auto all = records();
  all[1].tensors.push_back(tensor(2, "a", 3, {}));
  EXPECT_THAT(leave_out_private_steps(all), IsEmpty());
}

TEST(PrivateSteps, AreNoneWhereTheRanksHaveDifferentModels) {
  auto all = records();
  all[1].tensors[0].sizes = {8};
  EXPECT_THAT(leave_out_private_steps(all), IsEmpty());
}

TEST(PrivateSteps, AreNoneWhereEveryRankHasAsMany) {
  auto all = records();
  all[1].facts.push_back({2, "optimizer 1", "tensors", "[0]"});
  EXPECT_THAT(leave_out_private_steps(all), IsEmpty());
}

}  // namespace
}  // namespace ddp_doctor
