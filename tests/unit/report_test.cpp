// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/report/compare/make_report.h"
#include "lib/report/render/render.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

RunBuilder named(const std::string& strategy, int steps = 6) {
  RunBuilder run(2, {"orphan.weight", "head.weight"}, steps);
  run.info().strategy = strategy;
  run.info().program = "orphan.pt";
  return run;
}

RunReport sick_run() {
  RunBuilder run = named("ddp");
  run.wrapper({{"find_unused_parameters", "0"}})
      .unused(0, 0)
      .unused(1, 0)
      .differ(1, 1, Stage::kGradient, 1);
  constexpr char kText[] =
      "Expected to have finished reduction in the prior iteration before starting a new one.";
  run.raise(0, 2, kText).raise(1, 2, kText);
  return report_run(run.build(), 0);
}

RunReport cured_run(const std::string& strategy, std::int64_t step_ns, int index) {
  RunBuilder run = named(strategy);
  run.wrapper({{strategy == "ddp-static-graph" ? "static_graph" : "find_unused_parameters", "1"}})
      .unused(0, 0)
      .unused(1, 0);
  run.each_step([&](int, StepRecord& step) { step.duration_ns = step_ns; });
  return report_run(run.build(), index);
}

std::string text_of(const Report& report) {
  std::ostringstream out;
  render_text(report, {}, out);
  return out.str();
}

nlohmann::json json_of(const Report& report) {
  std::ostringstream out;
  render_json(report, {}, out);
  return nlohmann::json::parse(out.str());
}

TEST(Report, IsHealthyWhereNothingWasFound) {
  const Report report = make_report({report_run(named("ddp").wrapper({}).build(), 0)});
  EXPECT_EQ(report.health(), Health::kHealthy);
  EXPECT_THAT(text_of(report),
              HasSubstr("Verdict: healthy: 2 ranks x 6 steps, replicas bit-identical\n"));
}

TEST(Report, IsInconclusiveWhereNoStepWasCompletedByAll) {
  RunBuilder run(2, {"w"}, 0);
  const Report report = make_report({report_run(run.build(), 0)});
  EXPECT_EQ(report.health(), Health::kInconclusive);
  EXPECT_EQ(report.runs.front().outcome, "no step compared");
}

TEST(Report, IsHealthyWithAdviceOnly) {
  RunBuilder run = named("ddp-find-unused");
  run.wrapper({{"find_unused_parameters", "1"}});
  const Report report = make_report({report_run(run.build(), 0)});
  EXPECT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.health(), Health::kHealthy);
}

TEST(Report, IsInconclusiveWhereARunWasStoppedWithoutAFinding) {
  RunBuilder run = named("ddp");
  run.record(0).events.clear();
  const Report report = make_report({report_run(run.build(), 0)});
  EXPECT_EQ(report.health(), Health::kInconclusive);
  EXPECT_THAT(text_of(report),
              HasSubstr("Verdict: inconclusive: the run was stopped in step 7, before its end\n"));
}

RunReport drifts_from_step_6(std::initializer_list<int> not_examined) {
  RunBuilder run = named("as-is");
  run.wrapper({}).differ(1, 0, Stage::kWeight, 6);
  run.each_step([&](int, StepRecord& step) {
    if (std::ranges::find(not_examined, step.step) == not_examined.end()) return;
    step.examined = false;
    step.observations.clear();
  });
  return report_run(run.build(), 0);
}

TEST(Report, SaysWhichStepsLieBeforeTheOneInWhichAFindingWasFirstSeen) {
  const auto between = HasSubstr(
      "first seen in step 6, and the step examined before it is 3; --warmup 6 --stop-after 6");
  EXPECT_THAT(drifts_from_step_6({4, 5}).notes, Contains(between));
  EXPECT_THAT(drifts_from_step_6({2, 3}).notes, Not(Contains(HasSubstr("first seen in step"))));
}

TEST(Report, PromotesConsequencesWhoseCauseIsIgnored) {
  Report report = make_report({sick_run()});
  select_findings(report, [](const Finding& finding) { return finding.rule != "DDP201"; });
  ASSERT_EQ(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].rule, "DDP102");
  EXPECT_EQ(report.health(), Health::kSick);

  Report only = make_report({sick_run()});
  select_findings(only, [](const Finding& finding) { return finding.rule == "DDP204"; });
  EXPECT_TRUE(only.findings.empty());
  EXPECT_FALSE(only.bit_identical());
  EXPECT_THAT(text_of(only), Not(HasSubstr("bit-identical")));
}

TEST(Report, KeepsAStrategyThatCouldNotRunAsAColumn) {
  RunInfo info;
  info.strategy = "ddp-static-graph";
  const Report report =
      make_report({sick_run(), report_of_no_run(info, "no space left\non the disk")});
  EXPECT_THAT(text_of(report), HasSubstr("could not run: no space left\n"));
}

TEST(Proof, PrescribesTheFastestStrategyThatFixesIt) {
  for (const bool static_is_cheaper : {true, false}) {
    const Report report = make_report(
        {sick_run(), cured_run("ddp-find-unused", static_is_cheaper ? 3'000'000 : 1'000'000, 1),
         cured_run("ddp-static-graph", 2'000'000, 2)});
    ASSERT_EQ(report.findings.size(), 1u);
    const Finding& finding = report.findings[0];
    ASSERT_TRUE(finding.proof);
    EXPECT_TRUE(finding.proof->cured);
    EXPECT_EQ(finding.prescription.strategy,
              static_is_cheaper ? "ddp-static-graph" : "ddp-find-unused");
    EXPECT_THAT(
        finding.proof->text,
        HasSubstr(static_is_cheaper
                      ? "Its steps are faster here: 2 ms per step (median of 4, 2 to 2), "
                      : "Its steps are faster here: 1 ms per step (median of 4, 1 to 1), "));
  }
}

TEST(Proof, SaysWhereTheStrategyDoesNotFixIt) {
  RunBuilder still_sick = named("ddp-static-graph");
  still_sick.wrapper({{"static_graph", "1"}}).differ(1, 1, Stage::kWeight, 2);
  const Report report = make_report({sick_run(), report_run(still_sick.build(), 1)});
  ASSERT_TRUE(report.findings.at(0).proof);
  EXPECT_FALSE(report.findings[0].proof->cured);
  EXPECT_THAT(report.findings[0].proof->text, HasSubstr("does not fix it here: DDP301"));
}

TEST(TextReport, ShowsStepsSideBySideAndTheErrorInItsRow) {
  const std::string text =
      text_of(make_report({sick_run(), cured_run("ddp-find-unused", 1'000'000, 1)}));
  EXPECT_THAT(text,
              HasSubstr("2 | raised in step 2 (forward): Expected to have finished reduction"));
  EXPECT_THAT(text, HasSubstr("unused: orphan.weight (index 0)"));
  EXPECT_THAT(text, HasSubstr("which leads to"));
  EXPECT_THAT(text, testing::EndsWith("Verdict: sick: DDP201 unused-parameters\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[")));
}

TEST(TextReport, DoesNotShowAnUnmeasuredDriftAsAFigure) {
  RunBuilder run = named("ddp");
  run.wrapper({}).differ(1, 1, Stage::kWeight, 1);  // no values were kept
  EXPECT_THAT(text_of(make_report({report_run(run.build(), 0)})), HasSubstr("> 0\n"));
}

TEST(TextReport, FoldsTheStepsOfALongRun) {
  const std::string text =
      text_of(make_report({report_run(named("ddp", 40).wrapper({}).build(), 0)}));
  EXPECT_THAT(text, HasSubstr("\n2..40 | "));
  EXPECT_THAT(text, Not(HasSubstr("\n   15 |")));
}

TEST(TextReport, OmitsTheMiddleOfALongRunWhenVerbose) {
  std::ostringstream out;
  render_text(make_report({report_run(named("ddp", 40).wrapper({}).build(), 0)}), {.verbose = true},
              out);
  EXPECT_THAT(out.str(), HasSubstr("... | 20 steps omitted"));
  EXPECT_THAT(out.str(), Not(HasSubstr("\n  15 |")));
}

TEST(JsonReport, CarriesWhatTheTextSays) {
  const auto json = json_of(make_report({sick_run(), cured_run("ddp-find-unused", 1'000'000, 1)}));
  EXPECT_EQ(json["verdict"], "sick");
  EXPECT_EQ(json["runs"][0]["steps_table"][0]["unused"], nlohmann::json::parse("[[0],[0]]"));
  EXPECT_EQ(json["runs"][0]["steps_table"][0]["drift"], 0.0);
  EXPECT_EQ(json["findings"][0]["parameters"][0]["name"], "orphan.weight");
  EXPECT_EQ(json["findings"][0]["proof"]["run"], 1);
  EXPECT_EQ(json["runs"][1]["rules"], nlohmann::json::parse(R"(["DDP201","DDP207","DDP208"])"));
}

TEST(JsonReport, CountsTheStepsThatWereNotExaminedBeforeARankWasKilled) {
  RunBuilder run = named("ddp");
  run.step(0, 5).examined = run.step(0, 6).examined = false;
  run.step(1, 5).examined = run.step(1, 6).examined = false;
  EXPECT_EQ(json_of(make_report({report_run(run.build(), 0)}))["runs"][0]["steps"], 6);
}

TEST(JsonReport, SpellsOutWhatJsonCannotHold) {
  RunBuilder run = named("ddp");
  run.wrapper({}).step(0, 1).loss = std::numeric_limits<double>::quiet_NaN();
  const auto json = json_of(make_report({report_run(run.build(), 0)}));
  EXPECT_EQ(json["runs"][0]["steps_table"][0]["loss"][0], "nan");
}

}  // namespace
}  // namespace ddp_doctor
