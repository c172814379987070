// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"
#include "lib/report/render/evidence.h"
#include "lib/report/render/text.h"
#include "lib/report/render/wrap.h"

namespace ddp_doctor::text {
namespace {

std::string place_of(const Where& where) {
  std::string place = fmt::format("at {}:{}", where.file, where.line);
  for (std::size_t i = 0; i < where.via.size(); ++i)
    place += (i == 0 ? ", through " : ", ") + where.via[i];
  return place;
}

std::string extent_of(const Finding& finding) {
  return ranks_of(finding.ranks) +
         (finding.first_step ? fmt::format(", from step {}", *finding.first_step) : "");
}

// What tells most of a consequence, as far as it is known; otherwise its message.
std::string figure_of(const Finding& finding) {
  const auto& evidence = finding.evidence;
  if (const auto error = evidence.find("error"); error != evidence.end() && error->is_string())
    return error->get<std::string>();
  for (const char* key : {"last_max_abs_difference", "max_abs_difference"}) {
    if (evidence.contains(key) && evidence[key].is_number())
      return fmt::format("max |W_i - W_j| = {:.3e}", evidence[key].get<double>());
  }
  if (evidence.contains("steps_apart") && evidence.contains("steps_seen"))
    return fmt::format("in {} of {}", evidence["steps_apart"].get<std::size_t>(),
                       count_of(evidence["steps_seen"].get<std::size_t>(), "step"));
  return finding.message;
}

void print_evidence(const Finding& finding, std::size_t indent, std::ostream& out) {
  if (finding.evidence.empty()) return;
  std::string text;
  for (const auto& [key, value] : finding.evidence.items()) {
    if (key == "errors") continue;
    const std::string words = in_words(value);
    const bool lines = words.find('\n') != std::string::npos;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", label_of(key),
                        lines ? value.dump() : words);
  }
  print_wrapped(out, "Evidence: " + text, indent, indent + 2);
  if (const auto errors = finding.evidence.find("errors");
      errors != finding.evidence.end() && errors->is_object()) {
    for (const auto& [rank, error] : errors->items())
      print_wrapped(out, fmt::format("rank {}: {}", rank, telling_line(in_words(error))),
                    indent + 2, indent + 4);
  }
}

void print_consequence(const Finding& finding, const RenderOptions& options, std::ostream& out) {
  constexpr std::size_t kIndent = 4;
  const std::string head = finding.rule + " " + finding.name;
  const char* certainty = finding.certainty == Certainty::kLikely ? "likely; " : "";
  std::string rest = fmt::format(": {}{}", certainty, extent_of(finding));
  if (!options.verbose) {
    const std::size_t room =
        kTextWidth - std::min(kTextWidth - 20, kIndent + head.size() + rest.size() + 2);
    rest += "; " + shortened(figure_of(finding), room);
  }
  out << std::string(kIndent, ' ') << colored(options, finding.severity, head) << rest << '\n';
  if (!options.verbose) return;
  print_wrapped(out, finding.message, kIndent + 2, kIndent + 2);
  if (finding.where) print_wrapped(out, place_of(*finding.where), kIndent + 2, kIndent + 2);
  print_evidence(finding, kIndent + 2, out);
}

void print_lines(const char* mark, const std::string& text, std::ostream& out) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out << mark << line << '\n';
}

void print_change(const Change& change, std::ostream& out) {
  out << fmt::format("  Change {}:{}{}\n", change.file, change.line,
                     change.text.empty() ? "" : ":");
  if (!change.text.empty()) print_wrapped(out, change.text, 4, 4);
  if (change.after.empty()) return;
  print_lines("    - ", change.before, out);
  print_lines("    + ", change.after, out);
}

}  // namespace

std::string bold(const RenderOptions& options, const std::string& text) {
  return options.color ? fmt::format("\x1b[1m{}\x1b[0m", text) : text;
}

std::string colored(const RenderOptions& options, Severity severity, const std::string& text) {
  const char* code = severity == Severity::kError     ? "1;31"
                     : severity == Severity::kWarning ? "1;33"
                                                      : "1;36";
  return options.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

void print_finding(const Finding& finding, bool full, const RenderOptions& options,
                   std::ostream& out) {
  out << colored(options, finding.severity, finding.rule + " " + finding.name)
      << fmt::format(": {}, {}; {}\n", name_of(finding.severity), name_of(finding.certainty),
                     extent_of(finding));
  print_wrapped(out, finding.message, 2, 2);
  if (finding.where) print_wrapped(out, place_of(*finding.where), 2, 2);
  if (full && options.verbose) print_evidence(finding, 2, out);
  print_wrapped(out, "Do: " + finding.prescription.text, 2, 2);
  if (full && finding.proof) print_wrapped(out, "Tested: " + finding.proof->text, 2, 2);
  if (full && finding.change) print_change(*finding.change, out);
  if (!finding.consequences.empty()) out << "  which leads to\n";
  for (const auto& consequence : finding.consequences) print_consequence(consequence, options, out);
}

void print_findings(const Report& report, const RenderOptions& options, std::ostream& out) {
  const bool none = report.findings.empty();
  out << '\n' << bold(options, none ? "Findings: none" : "Findings") << '\n';
  for (const auto& finding : report.findings) print_finding(finding, true, options, out);
  for (const auto& [finding, suppression, reason] : report.suppressed)
    print_wrapped(out, fmt::format("suppressed: {} {}: {}", finding.rule, finding.name, reason), 0,
                  2);
}

void print_findings_of(const RunReport& run, const RenderOptions& options, std::ostream& out) {
  const auto& findings = run.diagnosis.findings;
  const std::string heading = "Findings of " + run.label;
  if (findings.empty()) {
    print_wrapped(out << '\n', heading + ": " + (run.clean() ? "none" : run.outcome), 0, 2);
    return;
  }
  out << '\n' << bold(options, heading) << '\n';
  for (const auto& finding : findings) print_finding(finding, true, options, out);
}

void print_not_checked(const RunReport& run, std::ostream& out) {
  std::vector<std::pair<std::string, std::string>> by_reason;  // reason, rules
  for (const auto& skipped : run.diagnosis.not_checked) {
    const auto* rule = find_rule(skipped.rule);
    const std::string named =
        rule == nullptr ? skipped.rule : fmt::format("{} {}", skipped.rule, rule->name);
    const auto known = std::find_if(by_reason.begin(), by_reason.end(),
                                    [&](const auto& e) { return e.first == skipped.reason; });
    if (known == by_reason.end()) {
      by_reason.emplace_back(skipped.reason, named);
    } else {
      known->second += ", " + named;
    }
  }
  for (const auto& [reason, rules] : by_reason)
    print_wrapped(out, fmt::format("not checked: {}: {}", rules, reason), 0, 2);
}

}  // namespace ddp_doctor::text
