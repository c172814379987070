// SPDX-License-Identifier: BSD-3-Clause
// What a user expects of a program: suppressions and baselines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lib/error.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/gate/baseline.h"
#include "lib/report/gate/suppression.h"
#include "tests/temporary_folder.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunBuilder run_of(int steps = 5) {
  RunBuilder run(2, {"a", "b"}, steps);
  run.info().program = "train.py";
  return run.wrapper({{"find_unused_parameters", "1"}});
}

Report drifting() {
  RunBuilder run = run_of();
  run.differ(1, 1, Stage::kWeight, 3);
  return make_report({report_run(run.build(), 0)});
}

TEST(Suppression, RefusesWhatIsNone) {
  EXPECT_THROW(Suppression("DDP301"), Error);
  EXPECT_THROW(Suppression("DDP301:*"), Error);
  EXPECT_THROW(Suppression("DDP301:*:*"), Error);
  EXPECT_THROW(Suppression("DDP301:*:*  "), Error);
  EXPECT_THROW(Suppression("DDP000:*:* why"), Error);
  EXPECT_EQ(Suppression("weights-drift:*:*  why not").reason(), "why not");
}

TEST(Suppression, CoversAFindingOnlyWithAllOfItsParameters) {
  Finding finding;
  finding.rule = "DDP201";
  finding.parameters = {{"head.weight", 0}, {"tail.weight", 1}};
  Report report = drifting();
  report.findings = {finding};
  const auto left = [&](const std::vector<Suppression>& suppressions) {
    Report copy = report;
    suppress(copy, suppressions, {});
    return copy.findings.size();
  };
  EXPECT_EQ(left({Suppression("DDP201:head.*:* why")}), 1u);
  EXPECT_EQ(left({Suppression("DDP201:head.*:* why"), Suppression("DDP201:tail.*:* why")}), 0u);
  EXPECT_EQ(left({Suppression("DDP201:*.weight:train.py why")}), 0u);
  EXPECT_EQ(left({Suppression("DDP201:*.weight:train.py:1 why")}), 0u);
  EXPECT_EQ(left({Suppression("DDP201:*.weight:other.py why")}), 1u);
}

TEST(Suppression, OfEveryParameterNeedsTheStar) {
  Finding finding;
  finding.rule = "DDP101";
  Report report = drifting();
  report.findings = {finding};
  suppress(report, {Suppression("DDP101:a*:* why")}, {});
  EXPECT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.unused_suppressions, ElementsAre("DDP101:a*:* why"));
  report.unused_suppressions.clear();
  suppress(report, {Suppression("DDP101:*:* why")}, {});
  EXPECT_THAT(report.findings, IsEmpty());
  ASSERT_EQ(report.suppressed.size(), 1u);
  EXPECT_EQ(report.suppressed[0].reason, "why");
}

TEST(Suppression, PrintedOfAFindingSuppressesIt) {
  Report report = drifting();
  ASSERT_FALSE(report.findings.empty());
  std::vector<Suppression> printed;
  for (const auto& finding : report.findings) {
    for (const auto& text : suppressions_of(finding, report.runs.front(), {}))
      printed.emplace_back(text + " because");
  }
  suppress(report, printed, {});
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(report.unused_suppressions, IsEmpty());
}

TEST(Baseline, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const auto run = report_run(run_of().build(), 0);
  Baseline::of(run).save(folder.path() / "b.json");
  EXPECT_THAT(Baseline::load(folder.path() / "b.json").compare(run, Tolerance::kBits).differences,
              IsEmpty());
}

TEST(Baseline, NamesTheFirstStepAndParameterWhoseBitsPart) {
  const auto before = Baseline::of(report_run(run_of().build(), 0));
  RunBuilder changed = run_of();
  changed.differ(1, 1, Stage::kGradient, 3).differ(0, 0, Stage::kGradient, 4);
  const auto findings =
      before.compare(report_run(changed.build(), 0), Tolerance::kBits).differences;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].rule, "DDP601");
  EXPECT_EQ(findings[0].first_step, 3);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  ASSERT_EQ(findings[0].parameters.size(), 1u);
  EXPECT_EQ(findings[0].parameters[0].name, "b");
}

TEST(Baseline, NamesAParameterThatIsNoLongerUsed) {
  const auto before = Baseline::of(report_run(run_of().build(), 0));
  RunBuilder changed = run_of();
  changed.unused(0, 0).unused(1, 0);
  const auto findings =
      before.compare(report_run(changed.build(), 0), Tolerance::kBits).differences;
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].rule, "DDP602");
  EXPECT_EQ(findings[0].parameters[0].name, "a");
}

TEST(Baseline, OfAnotherNumberOfRanksIsRefused) {
  const auto before = Baseline::of(report_run(run_of().build(), 0));
  RunBuilder three(3, {"a", "b"}, 5);
  const auto run = report_run(three.build(), 0);
  EXPECT_THROW(before.compare(run, Tolerance::kBits).differences, Error);
}

TEST(Baseline, RefusesWhatIsNone) {
  const TemporaryFolder folder;
  EXPECT_THROW(Baseline::load(folder.path() / "nothing"), Error);
  for (const char* text : {"", "{", "{}", "[]", R"({"ddp_doctor_baseline": 9})",
                           R"({"ddp_doctor_baseline": 1, "world_size": 2, "torch_version": "",
                               "steps": {"1": {"a": {"gradient": ["xyz"], "weight": [], "used": []}}}})"}) {
    std::ofstream(folder.path() / "bad") << text;
    EXPECT_THROW(Baseline::load(folder.path() / "bad"), Error) << text;
  }
}

}  // namespace
}  // namespace ddp_doctor
