// SPDX-License-Identifier: BSD-3-Clause

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "lib/report/compare/against_one_process.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/merge/read_json.h"
#include "lib/report/render/render.h"
#include "lib/report/value/verdict.h"
#include "tests/unit/planted_gradients.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

Report report_with(Parity parity) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.info().program = "train.py";
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  add_parity(examined, std::move(parity));
  return make_report({std::move(examined)});
}

std::string rendered(const char* format, const Report& report) {
  std::ostringstream out;
  find_format(format)->render(report, {}, out);
  return out.str();
}

TEST(ParityReport, HasTheComparedStepsInEachFormat) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  const Report report = report_with(judged(planted.step(3)));
  EXPECT_EQ(verdict_of(report), "sick: DDP701 parity-scale");
  const std::string caption = "Gradients of 2 ranks against one process on the same samples";
  EXPECT_THAT(rendered("text", report),
              HasSubstr(caption + "\nstep | parameters | equal | difference | rounding alone\n"
                                  "   3 |          3 |     0 |    1.0e+00 | "));
  const auto json = nlohmann::json::parse(rendered("json", report)).at("parity");
  EXPECT_TRUE(json.at("inconclusive").is_null());
  EXPECT_EQ(json.at("steps").at(0).at("step"), 3);
  EXPECT_EQ(json.at("steps").at(0).at("parameters"), 3);
  EXPECT_EQ(json.at("steps").at(0).at("equal"), 0);
  EXPECT_NEAR(json.at("steps").at(0).at("distance").get<double>(), 1, 1e-5);
  EXPECT_THAT(rendered("markdown", report),
              HasSubstr("<details><summary>" + caption +
                        "</summary>\n\n| step | parameters | equal | difference | rounding alone "
                        "|\n|---:| ---: | ---: | ---: | ---: |\n| 3 | 3 | 0 | 1.0e+00 | "));
  const auto html = rendered("html", report);
  EXPECT_THAT(html, HasSubstr(caption));
  EXPECT_THAT(html, HasSubstr("dropout, stochastic depth, torch.compile and TF32 are off"));
  EXPECT_THAT(rendered("prometheus", report), HasSubstr(R"(rule="DDP701",name="parity-scale"} 1)"));
}

TEST(ParityReport, IsInconclusiveWithTheReason) {
  Parity parity;
  parity.inconclusive = "no batch was drawn";
  const Report report = report_with(parity);
  EXPECT_EQ(report.health(), Health::kInconclusive);
  EXPECT_EQ(verdict_of(report),
            "inconclusive: cannot be compared with one process: no batch was drawn");
  EXPECT_THAT(rendered("text", report), Not(HasSubstr("against one process")));
  EXPECT_EQ(nlohmann::json::parse(rendered("json", report)).at("parity").at("inconclusive"),
            "no batch was drawn");
}

TEST(ParityReport, SaysWhyNothingWasComparedBesideFindings) {
  RunBuilder run(2, {"a", "b"}, 4);
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  examined.diagnosis.findings = {finding_of(kWrapperBypassed)};
  Parity parity;
  parity.inconclusive = "the ranks' own run has errors";
  add_parity(examined, std::move(parity));
  EXPECT_THAT(rendered("text", make_report({std::move(examined)})),
              HasSubstr("not compared with one process: the ranks' own run has errors"));
}

TEST(ParityReport, IsTheSameReadAgainFromJson) {
  Parity parity;
  parity.inconclusive = "no batch was drawn";
  for (const Report& report : {report_with(parity), report_with(judged(Planted(2).step()))}) {
    const std::string json = rendered("json", report);
    const Report again = read_report(json, "r.json");
    EXPECT_EQ(verdict_of(again), verdict_of(report));
    EXPECT_EQ(nlohmann::json::parse(rendered("json", again)).at("parity"),
              nlohmann::json::parse(json).at("parity"));
  }
}

TEST(ParityReport, IsHealthyInOneSentence) {
  EXPECT_THAT(verdict_of(report_with(judged(Planted(2).step()))),
              HasSubstr("healthy: gradients of 2 ranks are those of one process: 3 of 3"));
}

TEST(ParityReport, IsAbsentFromOtherReports) {
  RunBuilder run(2, {"a", "b"}, 4);
  const Report report = make_report({report_run(run.wrapper({}).build(), 0)});
  EXPECT_FALSE(nlohmann::json::parse(rendered("json", report)).contains("parity"));
  EXPECT_THAT(rendered("html", report), Not(HasSubstr("against one process")));
}

TEST(ParityReport, NestsWhatTheRunAloneSaysOfTheSame) {
  Planted planted(2);
  for (auto& gradient : planted.ranks) gradient = times(2, gradient);
  RunBuilder run(2, {"a", "b"}, 4);
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  Finding alone = finding_of(kGradientScale);
  alone.where = Where{"train.py", 12, {}};
  alone.ranks = {0, 1};
  alone.first_step = 1;
  examined.diagnosis.findings = {alone};
  EXPECT_FALSE(ranks_disagree(examined));
  add_parity(examined, judged(planted.step()));
  const Report report = make_report({std::move(examined)});
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].rule, kParityScale.code);
  ASSERT_TRUE(report.findings[0].where);
  EXPECT_EQ(report.findings[0].where->line, 12);
  ASSERT_THAT(report.findings[0].consequences, SizeIs(1));
  EXPECT_EQ(report.findings[0].consequences[0].rule, kGradientScale.code);
}

TEST(ParityReport, ComparesNothingWhereTheRanksDoNotAgree) {
  RunBuilder run(2, {"a", "b"}, 4);
  RunReport examined = report_run(run.wrapper({}).build(), 0);
  EXPECT_FALSE(ranks_disagree(examined));
  examined.diagnosis.findings = {finding_of(kWrapperBypassed)};
  EXPECT_TRUE(ranks_disagree(examined));
  examined.diagnosis.findings = {finding_of(kDuplicateData)};  // a warning
  EXPECT_FALSE(ranks_disagree(examined));
}

}  // namespace
}  // namespace ddp_doctor
