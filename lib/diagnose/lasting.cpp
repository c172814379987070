// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/lasting.h"

#include "lib/diagnose/rule.h"

namespace ddp_doctor {

bool is_lasting(std::string_view rule) {
  const Rule* known = find_rule(rule);
  return known != nullptr && known->lasting;
}

std::vector<Finding> lasting(std::vector<Finding> findings) {
  std::erase_if(findings, [](const Finding& finding) {
    return finding.certainty != Certainty::kCertain || finding.severity < Severity::kWarning ||
           !is_lasting(finding.rule);
  });
  return findings;
}

}  // namespace ddp_doctor
