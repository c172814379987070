// SPDX-License-Identifier: BSD-3-Clause
// Renderers for servers: what they promise beyond being valid.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/report/compare/make_report.h"
#include "lib/report/render/place.h"
#include "lib/report/render/render.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

Finding finding_at(const std::string& rule, Severity severity, int line) {
  Finding finding;
  finding.rule = rule;
  finding.name = "some-name";
  finding.severity = severity;
  finding.message = "50% of it, <as> \"seen\"\nhere.";
  finding.where = Where{"src/train.py", line};
  return finding;
}

Report report_of(std::vector<Finding> findings) {
  RunBuilder run(2, {"a", "b"}, 4);
  run.info().program = "train.py";
  Report report = make_report({report_run(run.wrapper({}).build(), 0)});
  report.findings = std::move(findings);
  return report;
}

std::string rendered(const std::string& format, const Report& report,
                     const RenderOptions& options = {}) {
  std::ostringstream out;
  find_format(format)->render(report, options, out);
  return out.str();
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(Formats, AreFoundByNameAndBySuffix) {
  for (const auto& format : all_formats()) {
    EXPECT_EQ(find_format(format.name), &format);
    if (!format.suffix.empty()) {
      EXPECT_EQ(find_format(format.suffix), &format);
    }
  }
  EXPECT_EQ(find_format(""), nullptr);
  EXPECT_EQ(find_format(".doc"), nullptr);
}

TEST(Html, EscapesWhatTheProgramSaid) {
  auto finding = finding_at("DDP504", Severity::kError, 3);
  finding.message = "ValueError: <script>alert(\"1\")</script> & more \x1b[31m";
  const auto text = rendered("html", report_of({finding}));
  EXPECT_THAT(text,
              HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; more  [31m"));
  EXPECT_THAT(text, Not(HasSubstr("<script>alert")));
}

TEST(GitHub, ShowsNineOfAKindAndCountsTheRest) {
  std::vector<Finding> findings;
  for (int line = 1; line <= 12; ++line)
    findings.push_back(finding_at("DDP201", Severity::kError, line));
  findings.push_back(finding_at("DDP303", Severity::kWarning, 7));
  const auto text = rendered("github", report_of(findings));
  EXPECT_EQ(count(text, "::error "), 10u);
  EXPECT_THAT(text, HasSubstr("::error title=ddp-doctor::3 more errors not shown here"));
  EXPECT_EQ(count(text, "::warning "), 1u);
  EXPECT_THAT(text, Not(HasSubstr("::notice")));
}

TEST(GitHub, EscapesWhatWouldEndACommand) {
  const auto text = rendered("github", report_of({finding_at("DDP201", Severity::kError, 3)}));
  EXPECT_THAT(text, HasSubstr("::error file=src/train.py,line=3,title=DDP201 some-name::50%25 of "
                              "it, <as> \"seen\" here.%0ADo: "));
}

TEST(JUnit, CountsRootCausesAsFailuresAndTheirConsequencesAsSkipped) {
  Finding cause = finding_at("DDP101", Severity::kError, 3);
  cause.consequences = {finding_at("DDP301", Severity::kError, 9)};
  const auto text = rendered("junit", report_of({cause}));
  EXPECT_THAT(text, HasSubstr("failures=\"1\" errors=\"0\""));
  EXPECT_THAT(text, HasSubstr("name=\"DDP301 weights-drift\"><skipped message=\"a consequence of "
                              "DDP101 some-name\">"));
  EXPECT_THAT(text, HasSubstr("50% of it, &lt;as&gt; &quot;seen&quot; here."));
}

TEST(JUnit, FailsWhatTheGateFails) {
  const auto report = report_of({finding_at("DDP303", Severity::kWarning, 3)});
  EXPECT_THAT(rendered("junit", report), HasSubstr("failures=\"1\""));
  EXPECT_THAT(rendered("junit", report, {.fail_on = Severity::kError}),
              HasSubstr("failures=\"0\""));
  EXPECT_THAT(rendered("junit", report, {.fail_on = std::nullopt}), HasSubstr("failures=\"0\""));
}

TEST(Sarif, KeepsEachFingerprintOnce) {
  const auto log = nlohmann::json::parse(
      rendered("sarif", report_of({finding_at("DDP201", Severity::kError, 3),
                                   finding_at("DDP201", Severity::kError, 4),
                                   finding_at("DDP405", Severity::kAdvice, 4)})));
  const auto& results = log["runs"][0]["results"];
  ASSERT_EQ(results.size(), 3u);
  EXPECT_NE(results[0]["partialFingerprints"], results[1]["partialFingerprints"]);
  EXPECT_EQ(results[2]["level"], "note");
}

TEST(Sarif, MarksWhatIsSuppressed) {
  Report report = report_of({});
  report.suppressed.push_back({finding_at("DDP201", Severity::kError, 3), "DDP201:*:*", "later"});
  const auto log = nlohmann::json::parse(rendered("sarif", report));
  EXPECT_EQ(log["runs"][0]["results"][0]["suppressions"],
            nlohmann::json::parse(R"([{"kind": "external", "justification": "later"}])"));
}

TEST(Prometheus, HasASeriesForEveryRuleFoundOrNot) {
  const auto text = rendered("prometheus", report_of({finding_at("DDP201", Severity::kError, 3)}));
  EXPECT_THAT(text, HasSubstr("rule=\"DDP201\",name=\"unused-parameters\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("rule=\"DDP202\",name=\"rank-dependent-graph\"} 0\n"));
}

TEST(Place, IsToldFromTheRepositorysRoot) {
  const RenderOptions options{.root = "/repo", .folder = "/repo/sub"};
  EXPECT_EQ(file_in_repository("train.py", options), "sub/train.py");
  EXPECT_EQ(file_in_repository("/repo/src/model.py", options), "src/model.py");
  EXPECT_EQ(file_in_repository("../other.py", options), "other.py");
  EXPECT_EQ(file_in_repository("/elsewhere/model.py", options), "/elsewhere/model.py");
}

TEST(Place, HasAFingerprintOfRuleFileAndParametersOnly) {
  const Report report = report_of({});
  const auto print = [&](const Finding& finding) {
    return fingerprint_of(finding, report.runs.front(), {});
  };
  const Finding finding = finding_at("DDP201", Severity::kError, 3);
  Finding moved = finding_at("DDP201", Severity::kError, 30);
  moved.message = "other words";
  EXPECT_EQ(print(finding), print(moved));
  Finding other = finding;
  other.parameters = {{"a", 0}};
  EXPECT_NE(print(finding), print(other));
  EXPECT_NE(print(finding), print(finding_at("DDP202", Severity::kError, 3)));
}

}  // namespace
}  // namespace ddp_doctor
