// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/gate/check.h"

#include <algorithm>
#include <sstream>

#include "lib/diagnose/causes.h"
#include "lib/record/run_info.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/render/render.h"
#include "lib/report/value/report.h"

namespace ddp_doctor {

const Finding* Check::find(std::string_view code_or_name) const {
  return find_finding(findings, [&](const Finding& finding) {
    return finding.rule == code_or_name || finding.name == code_or_name;
  });
}

bool Check::in_sync() const {
  return steps > 0 && world_size > 1 &&
         std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
           return finding.severity >= Severity::kWarning;
         });
}

Check check_records(const std::filesystem::path& folder) {
  const Timeline timeline = Timeline::load(folder, load_run_info(folder));
  const Report report = make_report({report_run(timeline, 0)});
  Check check;
  check.findings = report.findings;
  check.world_size = report.world_size;
  check.steps = static_cast<std::int64_t>(complete_steps(timeline).size());
  std::ostringstream text;
  render_text(report, {}, text);
  check.report = text.str();
  return check;
}

}  // namespace ddp_doctor
