// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/unused_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/run_builder.h"
#include "tool/bisect/model_bisection.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RunBuilder run_of() {
  RunBuilder run(2, {"body.0.weight", "body.1.weight", "head.a.weight", "head.a.bias", "scale"}, 4);
  return run.wrapper({{"find_unused_parameters", "1"}});
}

TEST(UnusedModules, AreNoneWhereAllIsUsed) {
  EXPECT_THAT(unused_modules(report_run(run_of().build(), 0)), IsEmpty());
}

TEST(UnusedModules, NamesTheTopmostModuleWhoseParametersAllAreUnused) {
  RunBuilder run = run_of();
  for (const int rank : {0, 1}) run.unused(rank, 2).unused(rank, 3).unused(rank, 0);
  const auto groups = unused_modules(report_run(run.build(), 0));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(groups[0].names, ElementsAre("body.0", "head"));
  EXPECT_EQ(groups[0].parameters, 3u);
  EXPECT_THAT(groups[0].ranks, ElementsAre(0, 1));
}

TEST(UnusedModules, KeepsApartWhatIsUnusedOnOtherRanksOrInOtherSteps) {
  RunBuilder run = run_of();
  run.unused(1, 4, 3).unused(0, 0).unused(1, 0);
  const auto groups = unused_modules(report_run(run.build(), 0));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[1].names, ElementsAre("scale"));
  EXPECT_THAT(groups[1].ranks, ElementsAre(1));
  EXPECT_THAT(groups[1].steps, ElementsAre(3, 4));
}

// A program in which freezing `needed` is what it takes, and of which a run shows `seen`.
RunFrozen program(const std::vector<int>& seen, const std::vector<std::string>& needed) {
  return [=](const std::vector<std::string>& frozen) {
    RunBuilder run = run_of();
    const bool cured = std::all_of(needed.begin(), needed.end(), [&](const auto& name) {
      return std::find(frozen.begin(), frozen.end(), name) != frozen.end();
    });
    if (!cured) {
      for (const int id : seen) run.unused(0, id).unused(1, id);
    }
    RunReport report = report_run(run.build(), 0);
    if (!cured && seen.empty()) {
      Finding finding;
      finding.rule = "DDP201";
      report.diagnosis.findings = {finding};
    }
    return report;
  };
}

TEST(ModelBisection, FindsTheSmallestSetOfWhatWasSeen) {
  const auto found = bisect_model(program({0, 2, 3}, {"head"}));
  EXPECT_THAT(found.smallest, testing::Optional(ElementsAre("head")));
}

TEST(ModelBisection, GoesFromTheTopDownWhereNothingWasSeen) {
  const auto found = bisect_model(program({}, {"scale"}));
  EXPECT_THAT(found.smallest, testing::Optional(ElementsAre("scale")));
}

TEST(ModelBisection, SaysWhereNoPartExplainsIt) {
  const auto found = bisect_model(program({}, {"body", "head"}));
  EXPECT_TRUE(found.unused);
  EXPECT_FALSE(found.smallest);
}

TEST(ModelBisection, RunsAHealthyProgramOnce) {
  const auto found = bisect_model([](const auto&) { return report_run(run_of().build(), 0); });
  EXPECT_FALSE(found.unused);
  EXPECT_THAT(found.trials, IsEmpty());
}

}  // namespace
}  // namespace ddp_doctor
