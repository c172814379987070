// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

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
    run.step_place = finding.where;
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
            "m = DistributedDataParallel(\n    net,\n    device_ids=[0], static_graph=True\n)");
}

TEST_F(ChangeTest, TakesAFlagAway) {
  EXPECT_EQ(after("m = DDP(net, find_unused_parameters=True, bucket_cap_mb=1)\n", 1, "ddp"),
            "m = DDP(net, bucket_cap_mb=1)");
  EXPECT_EQ(after("m = DDP(net, broadcast_buffers=False)\n", 1, "broadcast-buffers"),
            "m = DDP(net)");
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

TEST_F(ChangeTest, AveragesBeforeTheStepOfTheOptimizerThatIsNamed) {
  EXPECT_THAT(after("    opt.step()\n", 1, "allreduce-flat", "DDP104"),
              HasSubstr("    for group in opt.param_groups:\n        for p in"));
  EXPECT_THAT(after("scaler.step(self.opt)\n", 1, "allreduce-flat", "DDP104"),
              HasSubstr("for group in self.opt.param_groups:"));
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
