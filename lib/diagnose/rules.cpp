// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iterator>

#include "lib/diagnose/rule.h"

namespace ddp_doctor {

std::span<const Rule* const> all_rules() { return kRules; }

const Rule* find_rule(std::string_view code_or_name) {
  const auto found = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule* rule) {
    return code_or_name == rule->code || code_or_name == rule->name;
  });
  return found == std::end(kRules) ? nullptr : *found;
}

const Rule& rule_of(const Finding& finding) {
  static const Rule kUnknown{};
  const Rule* rule = find_rule(finding.rule);
  return rule == nullptr ? kUnknown : *rule;
}

bool is_hang(const Finding& finding) { return finding.evidence.value("kind", "") == "hang"; }

Finding finding_of(const Rule& rule) {
  Finding finding;
  finding.rule = rule.code;
  finding.name = rule.name;
  finding.severity = rule.severity;
  return finding;
}

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kAdvice:
      return "advice";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

const char* name_of(Certainty certainty) {
  return certainty == Certainty::kCertain ? "certain" : "likely";
}

}  // namespace ddp_doctor
