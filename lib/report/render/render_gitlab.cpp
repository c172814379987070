// SPDX-License-Identifier: BSD-3-Clause
// GitLab's code quality report (a subset of Code Climate's).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "lib/report/render/place.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {

void render_gitlab(const Report& report, const RenderOptions& options, std::ostream& out) {
  using nlohmann::ordered_json;
  ordered_json issues = ordered_json::array();
  std::set<std::string> fingerprints;  // GitLab wants each once
  for (const auto& [run, findings] : judged_runs(report)) {
    for (const auto& finding : findings) {
      const auto place = place_of(finding, run, options);
      std::string print = fingerprint_of(finding, run, options);
      while (!fingerprints.insert(print).second) print += '+';
      const char* severity = finding.severity == Severity::kError     ? "critical"
                             : finding.severity == Severity::kWarning ? "major"
                                                                      : "info";
      issues.push_back({{"description", fmt::format("{} {}: {}", finding.rule, finding.name,
                                                    message_with_consequences(finding))},
                        {"check_name", finding.rule},
                        {"fingerprint", print},
                        {"severity", severity},
                        {"location", {{"path", place.file}, {"lines", {{"begin", place.line}}}}}});
    }
  }
  out << issues.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace ddp_doctor
