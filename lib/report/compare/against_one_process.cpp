// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/against_one_process.h"

#include <algorithm>
#include <utility>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr const Rule* kRulesOfParity[] = {&kParityScale, &kParityWeighting, &kParityParameters,
                                          &kParityForward};

bool explained_by_parity(const Finding& finding) {
  return std::any_of(std::begin(kRulesOfParity), std::end(kRulesOfParity), [&](const Rule* rule) {
    return std::any_of(rule->explains.begin(), rule->explains.end(),
                       [&](const Effect& effect) { return effect.rule->code == finding.rule; });
  });
}

}  // namespace

void add_parity(RunReport& run, Parity parity) {
  auto& findings = run.diagnosis.findings;
  auto all = flattened(findings);
  for (auto& finding : parity.findings) {
    // The line that a finding of the run alone names for the same thing.
    for (const auto& other : all) {
      if (explained_by_parity(other) && other.where) finding.where = other.where;
    }
    if (!finding.where) finding.where = run.stepped_at(finding.first_step);
    finding.run = run.info.index;
    all.push_back(finding);
  }
  findings = nest_consequences(std::move(all));
  if (!parity.inconclusive.empty() && !findings.empty())
    parity.notes.push_back("not compared with one process: " + parity.inconclusive);
  run.parity = std::move(parity);
}

bool ranks_disagree(const RunReport& run) {
  const auto& findings = run.diagnosis.findings;
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::kError && !explained_by_parity(finding);
  });
}

}  // namespace ddp_doctor
