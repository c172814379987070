// SPDX-License-Identifier: BSD-3-Clause
// Workflow commands of GitHub Actions. It shows at most 10 annotations of each kind in a step:
// nine findings and the number of others. The verdict is the last line.
#include <fmt/format.h>

#include "lib/diagnose/facts.h"
#include "lib/report/render/place.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

// GitHub shows 10 of each kind; the last one has the number of others.
constexpr std::size_t kShown = 9;

std::string replaced(const std::string& text, std::string_view letters) {
  std::string out;
  for (const char letter : text) {
    if (letters.find(letter) != std::string_view::npos) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    } else {
      out += letter;
    }
  }
  return out;
}
std::string as_message(const std::string& text) { return replaced(text, "%\r\n"); }
std::string as_property(const std::string& text) { return replaced(text, "%\r\n:,"); }

}  // namespace

void render_github(const Report& report, const RenderOptions& options, std::ostream& out) {
  for (const Severity severity : {Severity::kError, Severity::kWarning, Severity::kAdvice}) {
    const char* kind = severity == Severity::kAdvice ? "notice" : name_of(severity);
    std::size_t seen = 0;
    for (const auto& [run, findings] : judged_runs(report)) {
      for (const auto& finding : findings) {
        if (finding.severity != severity || ++seen > kShown) continue;
        const auto place = place_of(finding, run, options);
        out << fmt::format(
            "::{} file={},line={},title={}::{}\n", kind, as_property(place.file), place.line,
            as_property(fmt::format("{} {}", finding.rule, finding.name)),
            as_message(message_with_consequences(finding) + "\nDo: " + finding.prescription.text));
      }
    }
    if (seen > kShown)
      out << fmt::format("::{} title=ddp-doctor::{} not shown here; the whole report has them\n",
                         kind, count_of(seen - kShown, std::string("more ") + kind));
  }
  for (const auto& remark : remarks_on_suppressions(report))
    out << "::notice title=ddp-doctor::" << as_message(remark) << '\n';
  if (report.health() == Health::kInconclusive)
    out << "::warning title=ddp-doctor::" << as_message(verdict_of(report)) << '\n';
  out << "Verdict: " << verdict_of(report, options.fail_on) << '\n';
}

}  // namespace ddp_doctor
