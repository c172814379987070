// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/bisected.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/facts.h"
#include "lib/report/render/render.h"
#include "lib/report/render/wrap.h"

namespace ddp_doctor {
namespace {

using Outcome = JudgedCommit::Outcome;

bool same(const Finding& a, const Finding& b) {
  const auto names = [](const Finding& finding) {
    std::set<std::string> names;
    for (const auto& parameter : finding.parameters) names.insert(parameter.name);
    return names;
  };
  return a.rule == b.rule && names(a) == names(b);
}

std::vector<Finding> only_in(const JudgedCommit* here, const JudgedCommit* there) {
  if (here == nullptr) return {};
  std::vector<Finding> only = flattened(here->findings);
  if (there == nullptr) return only;
  const auto other = flattened(there->findings);
  std::erase_if(only, [&](const Finding& finding) {
    return std::any_of(other.begin(), other.end(),
                       [&](const Finding& known) { return same(finding, known); });
  });
  return only;
}

std::string abbreviated(const std::string& commit) { return commit.substr(0, 10); }

std::size_t count(const Bisected& bisected, bool skipped) {
  return static_cast<std::size_t>(std::count_if(
      bisected.examined.begin(), bisected.examined.end(), [&](const JudgedCommit& commit) {
        return (commit.outcome == Outcome::kSkipped) == skipped;
      }));
}

}  // namespace

const char* name_of(Outcome outcome) {
  return outcome == Outcome::kGood ? "good" : outcome == Outcome::kBad ? "bad" : "skipped";
}

const JudgedCommit* Bisected::find(const std::string& commit) const {
  const auto found = std::find_if(examined.begin(), examined.end(), [&](const auto& judged) {
    return judged.commit == commit && judged.outcome != Outcome::kSkipped;
  });
  return found == examined.end() ? nullptr : &*found;
}

std::vector<Finding> Bisected::came() const { return only_in(find(first_bad), find(parent)); }
std::vector<Finding> Bisected::went() const {
  return find(first_bad) == nullptr ? std::vector<Finding>{}
                                    : only_in(find(parent), find(first_bad));
}

std::string describe(const JudgedCommit& commit) {
  std::string text = name_of(commit.outcome);
  if (commit.outcome == Outcome::kSkipped) return text + ": " + commit.reason;
  for (const auto& finding : commit.findings) {
    text += fmt::format("{}{} {}", &finding == &commit.findings.front() ? ": " : ", ", finding.rule,
                        finding.name);
    if (finding.where) text += fmt::format(" at {}:{}", finding.where->file, finding.where->line);
    if (finding.first_step) text += fmt::format(" from step {}", *finding.first_step);
  }
  return text;
}

void render_text(const Bisected& bisected, std::ostream& out) {
  out << bisected.description << "\n\n";
  const auto list = [&](const char* mark, const std::vector<Finding>& findings) {
    for (const auto& finding : findings) {
      out << fmt::format("{} {} {}: {}, {}; {}", mark, finding.rule, finding.name,
                         name_of(finding.severity), name_of(finding.certainty),
                         ranks_of(finding.ranks));
      if (finding.first_step) out << fmt::format(", from step {}", *finding.first_step);
      if (finding.where) out << fmt::format(", at {}:{}", finding.where->file, finding.where->line);
      out << '\n';
      print_wrapped(out, finding.message, 4, 4);
      print_wrapped(out, "Do: " + finding.prescription.text, 4, 4);
    }
  };
  const bool parent_known = bisected.find(bisected.parent) != nullptr;
  out << fmt::format("Findings, against {}{}\n", abbreviated(bisected.parent),
                     parent_known ? "" : " (which was not examined)");
  list("+", bisected.came());
  list("-", bisected.went());
  out << fmt::format("\n{} of {} examined", count(bisected, false),
                     count_of(bisected.commits, "commit"));
  if (const auto skipped = count(bisected, true); skipped > 0)
    out << fmt::format(", {} could not be judged", skipped);
  out << '\n';
  if (bisected.suspects.empty()) {
    out << fmt::format("Verdict: {} is the first bad commit\n", abbreviated(bisected.first_bad));
    return;
  }
  out << "One of these commits, which could not be judged, may be the first bad one:\n";
  for (const auto& commit : bisected.suspects) out << "  " << abbreviated(commit) << '\n';
  out << fmt::format("Verdict: inconclusive: {} is bad, but may not be the first\n",
                     abbreviated(bisected.first_bad));
}

void render_json(const Bisected& bisected, std::ostream& out) {
  using nlohmann::ordered_json;
  ordered_json json = {{"schema_version", 1},
                       {"first_bad", bisected.first_bad},
                       {"conclusive", bisected.suspects.empty()},
                       {"suspects", bisected.suspects},
                       {"parent", bisected.parent},
                       {"commits", bisected.commits},
                       {"examined", ordered_json::array()},
                       {"came", ordered_json::array()},
                       {"went", ordered_json::array()}};
  for (const auto& judged : bisected.examined) {
    ordered_json entry = {{"commit", judged.commit},
                          {"title", judged.title},
                          {"outcome", name_of(judged.outcome)},
                          {"reason", judged.reason},
                          {"findings", ordered_json::array()}};
    for (const auto& finding : judged.findings)
      entry["findings"].push_back(finding_as_json(finding));
    json["examined"].push_back(std::move(entry));
  }
  for (const auto& finding : bisected.came()) json["came"].push_back(finding_as_json(finding));
  for (const auto& finding : bisected.went()) json["went"].push_back(finding_as_json(finding));
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace ddp_doctor
