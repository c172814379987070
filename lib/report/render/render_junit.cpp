// SPDX-License-Identifier: BSD-3-Clause
// For test reports of Jenkins and GitLab: a test case for each rule, without figures that differ
// from run to run.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/report/plot/markup.h"
#include "lib/report/render/place.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

// One test case: the result of one rule.
struct Case {
  enum class Kind { kPassed, kFailed, kError, kSkipped } kind = Kind::kPassed;
  std::string name;
  std::string message;
  std::string text;
};

std::string details_of(const Finding& finding, const SourcePlace& place) {
  std::string text =
      fmt::format("{}:{}\n{}, {}; {}", place.file, place.line, name_of(finding.severity),
                  name_of(finding.certainty), ranks_of(finding.ranks));
  if (finding.first_step) text += fmt::format(", from step {}", *finding.first_step);
  text += '\n' + message_with_consequences(finding) + "\nDo: " + finding.prescription.text;
  return text;
}

class JUnit {
 public:
  JUnit(const Report& report, const RenderOptions& options, std::ostream& out)
      : report_(report), options_(options), out_(out) {}

  void print() {
    out_ << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ddp-doctor\">\n";
    for (const auto& judged : judged_runs(report_)) suite(judged);
    out_ << "</testsuites>\n";
  }

 private:
  bool fails(const Finding& finding) const {
    return options_.fail_on && finding.severity >= *options_.fail_on;
  }

  std::vector<Case> cases_of(const Judged& judged) const {
    std::map<std::string, Case> by_rule;
    for (const auto& skipped : judged.run.diagnosis.not_checked)
      by_rule[skipped.rule] = {Case::Kind::kSkipped, "", "not checked: " + skipped.reason, ""};
    for (const auto& rule : judged.run.diagnosis.checked) by_rule[rule];
    const std::function<void(const Finding&, const std::string&)> below =
        [&](const Finding& cause, const std::string& root) {
          for (const auto& finding : cause.consequences) {
            by_rule[finding.rule] = {Case::Kind::kSkipped, "", "a consequence of " + root, ""};
            below(finding, root);
          }
        };
    for (const auto& finding : judged.findings) below(finding, finding.rule + " " + finding.name);
    for (const auto& suppressed : report_.suppressed)
      by_rule[suppressed.finding.rule] = {Case::Kind::kSkipped, "",
                                          "suppressed: " + suppressed.reason, ""};
    for (const auto& finding : judged.findings) {
      auto& entry = by_rule[finding.rule];
      const auto details = details_of(finding, place_of(finding, judged.run, options_));
      if (entry.kind == Case::Kind::kFailed) {  // one rule may be found in several places
        entry.text += "\n\n" + details;
        continue;
      }
      entry = {fails(finding) ? Case::Kind::kFailed : Case::Kind::kPassed, "",
               message_with_consequences(finding), details};
    }
    std::vector<Case> cases;
    const bool inconclusive = judged.run.health() == Health::kInconclusive;
    cases.push_back({inconclusive ? Case::Kind::kError : Case::Kind::kPassed, "examination",
                     inconclusive ? judged.run.outcome : "", ""});
    for (auto& [code, entry] : by_rule) {
      const Rule* rule = find_rule(code);
      entry.name = rule == nullptr ? code : fmt::format("{} {}", code, rule->name);
      cases.push_back(std::move(entry));
    }
    return cases;
  }

  void suite(const Judged& judged) {
    const auto cases = cases_of(judged);
    const auto count = [&](Case::Kind kind) {
      return std::count_if(cases.begin(), cases.end(),
                           [&](const Case& entry) { return entry.kind == kind; });
    };
    const std::string program = file_in_repository(judged.run.info.program, options_);
    out_ << fmt::format(
        "  <testsuite name=\"ddp-doctor {} ({})\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
        "skipped=\"{}\">\n    <properties>\n",
        escaped(program), escaped(judged.run.info.strategy), cases.size(),
        count(Case::Kind::kFailed), count(Case::Kind::kError), count(Case::Kind::kSkipped));
    const auto property = [&](const char* name, const auto& value) {
      out_ << fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name,
                          escaped(fmt::format("{}", value)));
    };
    property("version", report_.tool_version);
    property("ranks", judged.run.info.world_size);
    property("steps", judged.run.steps_seen());
    property("verdict", name_of(judged.run.health()));
    out_ << "    </properties>\n";
    for (const auto& entry : cases) test_case(program, entry);
    out_ << "  </testsuite>\n";
  }

  void test_case(const std::string& program, const Case& entry) {
    out_ << fmt::format("    <testcase classname=\"ddp-doctor.{}\" name=\"{}\"", escaped(program),
                        escaped(entry.name));
    const char* element = entry.kind == Case::Kind::kFailed    ? "failure"
                          : entry.kind == Case::Kind::kError   ? "error"
                          : entry.kind == Case::Kind::kSkipped ? "skipped"
                                                               : "system-out";
    if (entry.kind == Case::Kind::kPassed && entry.text.empty()) {
      out_ << "/>\n";
    } else if (entry.kind == Case::Kind::kPassed) {
      out_ << fmt::format("><{0}>{1}</{0}></testcase>\n", element, escaped(entry.text));
    } else {
      out_ << fmt::format("><{0} message=\"{1}\">{2}</{0}></testcase>\n", element,
                          escaped(entry.message), escaped(entry.text));
    }
  }

  const Report& report_;
  const RenderOptions& options_;
  std::ostream& out_;
};

}  // namespace

void render_junit(const Report& report, const RenderOptions& options, std::ostream& out) {
  JUnit(report, options, out).print();
}

}  // namespace ddp_doctor
