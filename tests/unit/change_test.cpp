// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/temporary_folder.h"
#include "tool/launch/source_change.h"

namespace ddp_doctor {
namespace {

using testing::HasSubstr;

class ChangeTest : public testing::Test {
 protected:
  std::optional<Change> change(const std::string& source, int line, const std::string& strategy,
                               const std::string& rule = "DDP201", const std::string& kind = "") {
    const auto file = folder_.path() / "train.py";
    std::ofstream(file) << source;
    Finding finding;
    finding.rule = rule;
    finding.where = Where{file.string(), line};
    finding.prescription.strategy = strategy;
    if (!kind.empty()) finding.evidence["kind"] = kind;
    RunReport run;
    run.step_places = {{1, *finding.where}};
    run.place_change = place_by("");
    return change_for(finding, run);
  }
  std::string after(const std::string& source, int line, const std::string& strategy,
                    const std::string& rule = "DDP201") {
    const auto found = change(source, line, strategy, rule);
    return found ? found->after : "nothing";
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(ChangeTest, AddsAFlagToTheWrapper) {
  EXPECT_EQ(after("a = 1\nmodel = DDP(Net(3, (4, 5)))  # here\n", 2, "ddp-find-unused"),
            "model = DDP(Net(3, (4, 5)), find_unused_parameters=True)  # here");
}

TEST_F(ChangeTest, WrapsTheModelBeforeItsOptimizer) {
  const auto found = change("net = Net()\nopt = SGD(self.net.parameters(), 0.1)\n", 2, "ddp",
                            "DDP102", "never-synchronized");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->line, 2);
  EXPECT_THAT(found->text,
              HasSubstr("self.net = torch.nn.parallel.DistributedDataParallel(self.net)"));
}

TEST_F(ChangeTest, GoesThroughACallOfSeveralLines) {
  EXPECT_EQ(after("m = DistributedDataParallel(\n    net,\n    device_ids=[0],\n)\n", 1,
                  "ddp-static-graph"),
            "m = DistributedDataParallel(\n    net,\n    device_ids=[0], static_graph=True,\n)");
}

TEST_F(ChangeTest, KnowsTheWrapperByAnotherName) {
  const std::string import = "from torch.nn.parallel import DistributedDataParallel as Wrap\n";
  EXPECT_EQ(after(import + "m = Wrap(net('DDP(x)'),  # ) of net\n         bucket_cap_mb=1)\n", 3,
                  "ddp-static-graph"),
            "m = Wrap(net('DDP(x)'),  # ) of net\n         bucket_cap_mb=1, static_graph=True)");
}

TEST_F(ChangeTest, TakesAFlagAway) {
  EXPECT_EQ(after("m = DDP(net, find_unused_parameters=True, bucket_cap_mb=1)\n", 1, "ddp"),
            "m = DDP(net, bucket_cap_mb=1)");
  EXPECT_EQ(after("m = DDP(net, broadcast_buffers=False)\n", 1, "broadcast-buffers"),
            "m = DDP(net)");
}

// The strategy cures by what it does to the forward, which is no change of this line.
TEST_F(ChangeTest, IsNoneOfAWrapperThatHasTheDefaults) {
  Finding finding;
  finding.rule = "DDP106";
  finding.prescription.strategy = "ddp";
  RunReport run;
  run.wrap_place = Where{"train.py", 9, {"accelerate/accelerator.py:1"}};
  run.ddp = {{"construction", "find_unused_parameters", "0"},
             {"construction", "static_graph", "0"}};
  EXPECT_FALSE(change_for(finding, run));
  run.ddp[0].value = "1";
  EXPECT_TRUE(change_for(finding, run));
}

TEST_F(ChangeTest, ReplacesOneFlagByAnother) {
  EXPECT_EQ(after("m = DDP(net, find_unused_parameters=True)\n", 1, "ddp-static-graph"),
            "m = DDP(net, static_graph=True)");
}

TEST_F(ChangeTest, LeavesExpressionsToTheUser) {
  const auto set = change("m = DDP(net, find_unused_parameters=kind == 'x', b=1)\n", 1, "ddp");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->after, "");
  EXPECT_EQ(set->text, "remove find_unused_parameters here");
  const auto spread = change("m = DDP(net, **options)\n", 1, "ddp-static-graph");
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->text, "set static_graph=True here");
}

TEST_F(ChangeTest, SendsAForwardThroughTheWrapper) {
  EXPECT_EQ(after("loss = ddp.module(x).sum()\n", 1, "ddp", "DDP101"), "loss = ddp(x).sum()");
  const auto method = change("loss = ddp.module.compute_loss(x)\n", 1, "ddp", "DDP101");
  ASSERT_TRUE(method);
  EXPECT_EQ(method->after, "");
  EXPECT_THAT(method->text, HasSubstr("call the wrapper here"));
}

// The program with the averaging as one line, "AVERAGE"; or what is said instead.
class AveragingTest : public ChangeTest {
 protected:
  std::string averaged(const std::string& body) {
    const std::string head = body.starts_with(' ') ? "while True:\n" : "";
    const std::string source = head + body;
    int line = 1;
    std::istringstream in(source);
    for (std::string text; std::getline(in, text) && text.find("step(") == std::string::npos;)
      ++line;
    const auto change = this->change(source, line, "allreduce-flat", "DDP104");
    if (!change) return "nothing";
    if (change->after.empty()) return "words";
    static const std::regex block(
        R"(for group in (\S+)\.param_groups:\n(?:\s+.*\n){4}.*get_world_size\(\))");
    return std::regex_replace(apply(*change), block, "AVERAGE($1)").substr(head.size());
  }
};

TEST_F(AveragingTest, StandsBetweenBackwardAndStepOnOneLine) {
  EXPECT_EQ(
      averaged("for x in data:\n    opt.zero_grad(); f(x).backward(); opt.step()\n"),
      "for x in data:\n    opt.zero_grad(); f(x).backward()\n    AVERAGE(opt)\n    opt.step()\n");
  EXPECT_EQ(averaged("    loss.backward(); clip_grad_norm_(p, 1)\n    opt.step()\n"),
            "    loss.backward()\n    AVERAGE(opt)\n    clip_grad_norm_(p, 1)\n    opt.step()\n");
}

TEST_F(AveragingTest, StandsBeforeUnscalingAndClipping) {
  EXPECT_EQ(averaged("  scaler.scale(loss).backward()\n  scaler.unscale_(self.opt)\n"
                     "  if clip:\n    clip_(p)\n  scaler.step(self.opt)\n"),
            "  scaler.scale(loss).backward()\n  AVERAGE(self.opt)\n  scaler.unscale_(self.opt)\n"
            "  if clip:\n    clip_(p)\n  scaler.step(self.opt)\n");
}

TEST_F(AveragingTest, StandsAfterAccumulation) {
  EXPECT_EQ(averaged("  for m in micro:\n    loss(m).backward()  # sums\n\n  opt.step()\n"),
            "  for m in micro:\n    loss(m).backward()  # sums\n\n  AVERAGE(opt)\n  opt.step()\n");
  EXPECT_EQ(
      averaged("  loss.backward()\n  if i % 4 == 3:\n    clip_(p)\n    opt.step()\n"),
      "  loss.backward()\n  if i % 4 == 3:\n    AVERAGE(opt)\n    clip_(p)\n    opt.step()\n");
  EXPECT_EQ(
      averaged("  if last:\n    loss.backward()\n  else:\n    part.backward()\n  opt.step()\n"),
      "  if last:\n    loss.backward()\n  else:\n    part.backward()\n  AVERAGE(opt)\n"
      "  opt.step()\n");
}

TEST_F(AveragingTest, IsPlacedByTheSyntaxNotByTheLooks) {
  EXPECT_EQ(averaged("  loss.backward()\n  log('opt.zero_grad()')\n  if last:\n    opt.step()\n"),
            "  loss.backward()\n  log('opt.zero_grad()')\n  if last:\n    AVERAGE(opt)\n"
            "    opt.step()\n");
  EXPECT_EQ(averaged("  try:\n    loss.backward(\n  )\n  finally:\n    opt.step()\n"),
            "  try:\n    loss.backward(\n  )\n  finally:\n    AVERAGE(opt)\n    opt.step()\n");
  EXPECT_EQ(averaged("  loss.backward()\n  @traced\n  def log(): pass\n  opt.step()\n"),
            "  loss.backward()\n  AVERAGE(opt)\n  @traced\n  def log(): pass\n  opt.step()\n");
  EXPECT_EQ(averaged("  print('loss.backward()')\n  opt.step()\n"), "words");
  EXPECT_EQ(averaged("  def backward_of(loss):\n    loss.backward()\n  opt.step()\n"), "words");
  EXPECT_EQ(averaged("  loss.backward()\n  for opt in all:\n    opt.step()\n"), "words");
}

TEST_F(AveragingTest, IsOnlyWordsWhereTheTextDoesNotTellThePlace) {
  EXPECT_EQ(averaged("  loss.backward()\n  clip_(p)\n  if i % 4 == 3:\n    opt.step()\n"), "words")
      << "clipped outside of the branch that steps";
  EXPECT_EQ(averaged("def update():\n  opt.step()\n"), "words") << "the backward is elsewhere";
  EXPECT_EQ(averaged("  loss.backward()\n  opt.step(closure)\n"), "words");
  EXPECT_EQ(averaged("  loss.backward()\n  if ready: opt.step()\n"), "words");
  EXPECT_EQ(averaged("print(1)\n"), "nothing");
}

TEST_F(AveragingTest, IsNotProposedForShards) {
  RunReport run;
  run.plain_data_parallel = false;
  run.step_places = {{1, Where{"train.py", 3}}};
  Finding finding;
  finding.rule = "DDP102";
  finding.prescription.strategy = "allreduce-flat";
  EXPECT_FALSE(change_for(finding, run));
}

TEST_F(ChangeTest, SaysNothingWhereTheLineIsAnother) {
  EXPECT_FALSE(change("print(1)\n", 1, "ddp-find-unused"));
  EXPECT_FALSE(change("m = DDP(net)\n", 99, "ddp-find-unused"));
  Finding elsewhere;
  elsewhere.where = Where{"/nowhere/train.py", 3};
  elsewhere.prescription.strategy = "ddp";
  EXPECT_FALSE(change_for(elsewhere, RunReport{}));
}

TEST_F(ChangeTest, NamesTheSettingOfTheLibraryThatWraps) {
  Finding finding;
  finding.prescription.strategy = "ddp-find-unused";
  RunReport run;
  run.wrap_place =
      Where{"/nowhere/train.py", 3, {"transformers/trainer.py:5", "accelerate/a.py:7"}};
  EXPECT_THAT(change_for(finding, run)->text,
              HasSubstr("TrainingArguments(ddp_find_unused_parameters=True)"));
}

}  // namespace
}  // namespace ddp_doctor
