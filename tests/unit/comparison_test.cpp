// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lib/report/compare/make_report.h"
#include "lib/report/compare/proof.h"
#include "lib/report/render/render.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::int64_t kMillisecond = 1'000'000;

RunBuilder program(const std::string& name, const std::string& strategy, Purpose purpose,
                   double ms = 1.0) {
  RunBuilder run(2, {"a", "b"}, 6);
  run.info().program = name;
  run.info().strategy = strategy;
  run.info().purpose = purpose;
  run.each_step([&](int, StepRecord& step) {
    step.duration_ns = static_cast<std::int64_t>(ms * kMillisecond);
  });
  return run;
}

// Rank 1 has different weights from the start, and different gradients from step 2 on.
RunBuilder with_two_bugs(const std::string& strategy) {
  RunBuilder run = program("train.py", strategy, Purpose::kFix);
  return run.differ(1, 0, Stage::kWeight, 0).differ(1, 1, Stage::kGradient, 2);
}

TEST(Labels, AreStrategiesOfOneProgramAndProgramsOtherwise) {
  const Report one =
      make_report({report_run(program("a/train.py", "as-is", Purpose::kCompare).build(), 0),
                   report_run(program("a/train.py", "ddp", Purpose::kCompare).build(), 1)});
  EXPECT_EQ(one.runs[0].label, "as-is");
  EXPECT_EQ(one.runs[1].label, "ddp");
  const Report two =
      make_report({report_run(program("a/bug.py", "as-is", Purpose::kCompare).build(), 0),
                   report_run(program("a/fixed.py", "ddp", Purpose::kCompare).build(), 1),
                   report_run(program("b/bug.py", "as-is", Purpose::kCompare).build(), 2)});
  EXPECT_EQ(two.runs[0].label, "bug.py");
  EXPECT_EQ(two.runs[1].label, "fixed.py@ddp");
  EXPECT_EQ(two.runs[2].label, "bug.py #2");
}

TEST(Comparison, SaysOutcomesAndWhereRunsPart) {
  RunBuilder bug = program("bug.py", "as-is", Purpose::kCompare);
  bug.differ(1, 1, Stage::kGradient, 3).differ(1, 1, Stage::kWeight, 3);
  const Report report =
      make_report({report_run(bug.build(), 0),
                   report_run(program("fixed.py", "as-is", Purpose::kCompare).build(), 1)});
  ASSERT_EQ(report.equalities.size(), 1u);
  ASSERT_TRUE(report.equalities[0].seen.parting);
  EXPECT_EQ(report.equalities[0].seen.parting->step, 3);
  EXPECT_THAT(report.difference, HasSubstr("bug.py: DDP"));
  EXPECT_THAT(report.difference, HasSubstr("fixed.py: clean"));
  EXPECT_THAT(report.difference,
              HasSubstr("different from step 3 on: the gradient of b on rank 1"));
  std::ostringstream text;
  render_text(report, {}, text);
  EXPECT_THAT(text.str(), testing::EndsWith("Verdict: bug.py: sick; fixed.py: healthy\n"));
  std::ostringstream markdown;
  render_markdown(report, {}, markdown);
  EXPECT_LT(markdown.str().find("**Difference:**"), markdown.str().find("<details>"));
  EXPECT_LT(markdown.str().find("**DDP"), markdown.str().find("<details>"));
  EXPECT_THAT(markdown.str(), HasSubstr("<details><summary>Gradient norm per rank at "
                                        "optimizer.step</summary>\n\n| step |"));
  EXPECT_THAT(markdown.str(), HasSubstr("| step | bug.py r0 | bug.py r1 | synced | fixed.py r0 |"));
}

TEST(Comparison, IsNoPartOfAnOrdinaryRun) {
  const Report report =
      make_report({report_run(program("t.py", "as-is", Purpose::kRun).build(), 0)});
  EXPECT_THAT(report.equalities, IsEmpty());
  EXPECT_EQ(report.difference, "");
}

TEST(Fix, TriesWhatIsPrescribedAndThenWhatElseWouldDo) {
  const std::vector<std::string> possible = {"ddp", "broadcast-init"};
  const auto apart = [](const std::string& strategy, int index) {
    RunBuilder run = program("train.py", strategy, Purpose::kFix);
    return report_run(run.differ(1, 0, Stage::kWeight, 0).build(), index);
  };
  const Report before = make_report({apart("as-is", 0)});
  ASSERT_EQ(before.findings.at(0).rule, "DDP302");
  EXPECT_THAT(prescribed(before, possible), ElementsAre("ddp"));

  const Report then = make_report({apart("as-is", 0), apart("ddp", 1)});
  EXPECT_FALSE(then.findings.at(0).proof->cured);
  EXPECT_THAT(prescribed(then, possible), ElementsAre("broadcast-init"));

  const Report cured =
      make_report({apart("as-is", 0), apart("ddp", 1),
                   report_run(program("train.py", "broadcast-init", Purpose::kFix).build(), 2)});
  EXPECT_TRUE(cured.findings.at(0).proof->cured);
  EXPECT_EQ(cured.findings[0].prescription.strategy, "broadcast-init");
  EXPECT_THAT(prescribed(cured, possible), IsEmpty());
}

TEST(Fix, IsNoneThatLeavesAConsequence) {
  const auto run = [](const std::string& strategy, int index, int from_step) {
    RunBuilder apart = program("train.py", strategy, Purpose::kFix);
    return report_run(apart.differ(1, 0, Stage::kWeight, from_step).build(), index);
  };
  const Report report = make_report({run("as-is", 0, 0), run("ddp", 1, 2)});
  ASSERT_EQ(report.findings.at(0).rule, "DDP302");
  ASSERT_EQ(report.findings[0].consequences.at(0).rule, "DDP301");
  ASSERT_EQ(report.runs[1].diagnosis.findings.at(0).rule, "DDP301");
  EXPECT_FALSE(report.findings[0].proof->cured);
}

TEST(Fix, CombinesTheCuresOfSeveralFindings) {
  RunBuilder init_cured = program("train.py", "broadcast-init", Purpose::kFix);
  init_cured.differ(1, 1, Stage::kGradient, 2);
  RunBuilder gradients_cured = program("train.py", "allreduce-flat", Purpose::kFix);
  gradients_cured.differ(1, 0, Stage::kWeight, 0);
  const Report report =
      make_report({report_run(with_two_bugs("as-is").build(), 0), report_run(init_cured.build(), 1),
                   report_run(gradients_cured.build(), 2)});
  ASSERT_EQ(report.findings.size(), 2u);
  for (const auto& finding : report.findings)
    EXPECT_TRUE(finding.proof && finding.proof->cured) << finding.rule << ": " << finding.message;
  EXPECT_EQ(combined(report), "allreduce-flat+broadcast-init");
}

TEST(Fix, SaysWhatTheStrategyDidAndCouldNot) {
  RunBuilder run = program("train.py", "ddp", Purpose::kFix);
  run.fact(0, 1, "strategy ddp", "applied", "\"DistributedDataParallel(Net) with its flags\"")
      .fact(0, 1, "strategy ddp", "cannot", "\"Encoder is called by itself\"");
  const RunReport report = report_run(run.build(), 0);
  EXPECT_THAT(report.changes, ElementsAre("DistributedDataParallel(Net) with its flags"));
  EXPECT_THAT(report.unapplied, ElementsAre("Encoder is called by itself"));
}

}  // namespace
}  // namespace ddp_doctor
