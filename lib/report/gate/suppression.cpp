// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/gate/suppression.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/report/compare/make_report.h"

namespace ddp_doctor {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

Suppression::Suppression(const std::string& text) : text_(text) {
  const auto space = std::min(text.find(' '), text.size());
  const std::string what = text.substr(0, space);
  const auto first = what.find(':');
  const auto second = first == std::string::npos ? first : what.find(':', first + 1);
  if (second == std::string::npos) {
    throw Error(
        fmt::format("{}: not a suppression; write CODE:PARAMETERS:PLACE and a reason, as in "
                    "\"{}:backbone.unused_head.*:* kept for old checkpoints\"",
                    text, kUnusedParameters.code));
  }
  const Rule* rule = find_rule(what.substr(0, first));
  if (rule == nullptr) {
    throw Error(fmt::format("{}: {} is not a rule; `ddp-doctor rules` lists them", text,
                            what.substr(0, first)));
  }
  rule_ = rule->code;
  parameters_ = what.substr(first + 1, second - first - 1);
  places_ = what.substr(second + 1);
  const auto reason = text.find_first_not_of(' ', space);
  if (reason == std::string::npos) {
    throw Error(
        fmt::format("{}: say why this is expected, after a space: \"{} kept for old checkpoints\"",
                    text, text));
  }
  reason_ = text.substr(reason);
}

bool Suppression::covers(const Finding& finding, const SourcePlace& place,
                         const std::string& parameter) const {
  if (finding.rule != rule_) return false;
  const bool here = matches(places_, place.file) ||
                    matches(places_, fmt::format("{}:{}", place.file, place.line));
  return here && (parameter.empty() ? parameters_ == "*" : matches(parameters_, parameter));
}

void suppress(Report& report, const std::vector<Suppression>& suppressions,
              const RenderOptions& options) {
  if (suppressions.empty()) return;
  std::set<const Suppression*> used;
  std::map<const Suppression*, std::string> partial;  // and what it does not cover
  const auto covering = [&](const Finding& finding) {
    const auto place = place_of(finding, report.runs.front(), options);
    std::vector<std::string> names;
    for (const auto& parameter : finding.parameters) names.push_back(parameter.name);
    if (names.empty()) names.emplace_back();
    std::vector<const Suppression*> covering;
    std::string left;
    for (const auto& name : names) {
      const auto found = std::find_if(
          suppressions.begin(), suppressions.end(),
          [&](const Suppression& given) { return given.covers(finding, place, name); });
      if (found != suppressions.end()) {
        covering.push_back(&*found);
      } else if (left.empty()) {
        left = fmt::format("{} of {} {}", name, finding.rule, finding.name);
      }
    }
    if (left.empty()) return covering;
    for (const auto* given : covering) partial.emplace(given, left);
    return std::vector<const Suppression*>{};
  };
  select_findings(report, [&](const Finding& finding) {
    const auto by = covering(finding);
    if (by.empty()) return true;
    used.insert(by.begin(), by.end());
    report.suppressed.push_back({finding, by.front()->text(), by.front()->reason()});
    return false;
  });
  // A rule that could not be decided says nothing about its suppressions.
  const auto& checked = report.runs.front().diagnosis.checked;
  for (const auto& given : suppressions) {
    if (used.contains(&given)) continue;
    if (const auto some = partial.find(&given); some != partial.end()) {
      report.partial_suppressions.push_back({given.text(), some->second});
      continue;
    }
    if (std::find(checked.begin(), checked.end(), given.rule()) != checked.end())
      report.unused_suppressions.push_back(given.text());
  }
}

std::vector<std::string> suppressions_of(const Finding& finding, const RunReport& run,
                                         const RenderOptions& options) {
  const std::string file = place_of(finding, run, options).file;
  if (finding.parameters.empty()) return {fmt::format("{}:*:{}", finding.rule, file)};
  std::vector<std::string> texts;
  for (const auto& parameter : finding.parameters)
    texts.push_back(fmt::format("{}:{}:{}", finding.rule, parameter.name, file));
  return texts;
}

}  // namespace ddp_doctor
