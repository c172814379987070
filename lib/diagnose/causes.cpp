// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/causes.h"

#include <algorithm>

#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

bool explains(const Finding& cause, const Finding& effect) {
  // Advice describes a healthy run; it causes nothing.
  if (cause.severity == Severity::kAdvice) return false;
  if (cause.first_step && effect.first_step && *cause.first_step > *effect.first_step) return false;
  const auto kind = [](const Finding& finding) { return finding.evidence.value("kind", ""); };
  const auto& effects = rule_of(cause).explains;
  return std::any_of(effects.begin(), effects.end(), [&](const Effect& known) {
    return effect.rule == known.rule->code && (known.kind.empty() || known.kind == kind(effect)) &&
           (known.except.empty() || known.except != kind(effect)) &&
           (known.cause_kind.empty() || known.cause_kind == kind(cause));
  });
}

}  // namespace

std::vector<Finding> nest_consequences(std::vector<Finding> findings) {
  // In a chain (302 -> 102 -> 301) everything is nested under the first: the cause that no other
  // finding explains.
  const auto is_root = [&](const Finding& finding) {
    return std::none_of(findings.begin(), findings.end(),
                        [&](const Finding& other) { return explains(other, finding); });
  };
  std::vector<Finding> roots;
  std::vector<Finding> effects;
  for (const auto& finding : findings) (is_root(finding) ? roots : effects).push_back(finding);

  std::stable_sort(roots.begin(), roots.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    return a.rule < b.rule;
  });
  for (const auto& effect : effects) {
    auto cause = std::find_if(roots.begin(), roots.end(),
                              [&](const Finding& root) { return explains(root, effect); });
    if (cause == roots.end()) {
      // Its cause is itself an effect: nest it next to that one.
      cause = std::find_if(roots.begin(), roots.end(), [&](const Finding& root) {
        return std::any_of(effects.begin(), effects.end(), [&](const Finding& middle) {
          return explains(root, middle) && explains(middle, effect);
        });
      });
    }
    if (cause != roots.end()) {
      cause->consequences.push_back(effect);
    } else {
      roots.push_back(effect);
    }
  }
  return roots;
}

std::vector<Finding> flattened(const std::vector<Finding>& findings) {
  std::vector<Finding> all;
  for (const auto& finding : findings) {
    all.push_back(finding);
    all.back().consequences.clear();
    const auto below = flattened(finding.consequences);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

const Finding* find_finding(const std::vector<Finding>& findings,
                            const std::function<bool(const Finding&)>& wanted) {
  for (const auto& finding : findings) {
    if (wanted(finding)) return &finding;
    if (const auto* below = find_finding(finding.consequences, wanted)) return below;
  }
  return nullptr;
}

}  // namespace ddp_doctor
