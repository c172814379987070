// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/make_report.h"

#include <algorithm>
#include <utility>

#include "lib/diagnose/causes.h"
#include "lib/report/compare/comparison.h"
#include "lib/report/compare/proof.h"
#include "lib/version.h"

namespace ddp_doctor {

Report make_report(std::vector<RunReport> runs) {
  Report report;
  report.tool_version = kVersion;
  report.runs = std::move(runs);
  const auto& examined = report.runs.front();
  report.program = examined.info.program;
  report.world_size = examined.info.world_size;
  report.purpose = examined.info.purpose;
  report.findings = examined.diagnosis.findings;
  compare_runs(report);
  attach_proofs(report);
  return report;
}

void select_findings(Report& report, const std::function<bool(const Finding&)>& wanted) {
  auto all = flattened(report.findings);
  std::erase_if(all, [&](const Finding& finding) { return !wanted(finding); });
  report.findings = nest_consequences(std::move(all));
  attach_proofs(report);
}

}  // namespace ddp_doctor
