// One file that a browser shows as it is: no script, nothing loaded from anywhere.
#include <fmt/format.h>

#include "lib/diagnose/facts.h"
#include "lib/report/change.h"
#include "lib/report/figures.h"
#include "lib/report/render.h"
#include "lib/report/verdict.h"

namespace ddp_doctor {
namespace {

// Colours meet WCAG's contrast of 4.5 against both backgrounds.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --text: #1c1e21; --faint: #57606a; --page: #fff; --card: #f6f8fa; --line: #d0d7de;
  --error: #a40e26; --warning: #7a4d00; --advice: #0550ae; --healthy: #116329; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --faint: #9da7b1; --page: #0d1117; --card: #161b22;
  --line: #3d444d; --error: #ff8182; --warning: #e3b341; --advice: #79c0ff; --healthy: #56d364; } }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 0; }
.facts, .of { color: var(--faint); }
.error { color: var(--error); } .warning { color: var(--warning); } .advice { color: var(--advice); }
.healthy { color: var(--healthy); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .8rem 1rem; margin: .8rem 0; }
article article { margin-left: 0; } article p { margin: .4rem 0; }
pre, code { font-family: ui-monospace, monospace; font-size: .9em; }
pre { overflow-x: auto; margin: .4rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: .9rem; margin: .4rem 0; }
dt { color: var(--faint); } dd { margin: 0; }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are no characters of HTML.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

class Html {
 public:
  Html(const Report& report, const RenderOptions& options, std::ostream& out)
      : report_(report), options_(options), out_(out) {}

  void print() {
    const std::string verdict = verdict_of(report_, options_.fail_on);
    const bool healthy = report_.health() == Health::kHealthy;
    out_ << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
         << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
         << "<title>ddp-doctor: " << escaped(verdict) << "</title>\n<style>" << kStyle
         << "</style>\n</head>\n<body>\n<main>\n";
    out_ << fmt::format("<h1 class=\"{}\">{}</h1>\n", healthy ? "healthy" : "error",
                        escaped(verdict));
    out_ << fmt::format("<p class=\"facts\">{}, {}, {}; examined by ddp-doctor {}</p>\n",
                        escaped(report_.program),
                        count_of(static_cast<std::size_t>(report_.world_size), "rank"),
                        escaped(torch_of(report_)), report_.tool_version);
    for (const auto& remark : remarks_on_suppressions(report_)) fact(remark);
    if (!report_.difference.empty())
      out_ << "<p><strong>Difference:</strong> " << escaped(report_.difference) << "</p>\n";
    findings();
    out_ << "<h2>Figures</h2>\n";
    for (const auto& figures : figures_of(report_)) table(figures);
    out_ << "</main>\n</body>\n</html>\n";
  }

 private:
  void findings() {
    for (const auto& [run, findings] : judged_runs(report_)) {
      out_ << "<h2>Findings: " << escaped(run.label) << "</h2>\n";
      if (findings.empty()) out_ << "<p>none</p>\n";
      for (const auto& finding : findings) card(finding);
      for (const auto& note : run.notes) fact("note: " + note);
      for (const auto& skipped : run.diagnosis.not_checked)
        fact(fmt::format("not checked: {}: {}", skipped.rule, skipped.reason));
    }
    for (const auto& [finding, suppression, reason] : report_.suppressed)
      fact(fmt::format("suppressed: {} {}: {}", finding.rule, finding.name, reason));
  }

  void card(const Finding& finding) {
    out_ << fmt::format("<article>\n<h3><span class=\"{0}\">{1} {2}</span>: {0}, {3}</h3>\n",
                        name_of(finding.severity), finding.rule, finding.name,
                        name_of(finding.certainty));
    out_ << fmt::format(
        "<p class=\"of\">{}{}</p>\n", ranks_of(finding.ranks),
        finding.first_step ? fmt::format(", from step {}", *finding.first_step) : "");
    paragraph("", finding.message);
    if (finding.where)
      out_ << fmt::format("<p>at <code>{}:{}</code></p>\n", escaped(finding.where->file),
                          finding.where->line);
    if (!finding.evidence.empty()) {
      out_ << "<dl>";
      for (const auto& [key, value] : finding.evidence.items())
        out_ << "<dt>" << escaped(key) << "</dt><dd>"
             << escaped(value.is_string() ? value.get<std::string>() : value.dump()) << "</dd>";
      out_ << "</dl>\n";
    }
    paragraph("Do: ", finding.prescription.text);
    if (finding.proof) paragraph("Proof: ", finding.proof->text);
    if (finding.change) change(*finding.change);
    if (!finding.consequences.empty()) out_ << "<p class=\"of\">which leads to</p>\n";
    for (const auto& consequence : finding.consequences) card(consequence);
    out_ << "</article>\n";
  }

  void fact(const std::string& text) { out_ << "<p class=\"facts\">" << escaped(text) << "</p>\n"; }

  void paragraph(const char* label, const std::string& text) {
    if (!text.empty()) out_ << "<p>" << label << escaped(text) << "</p>\n";
  }

  void change(const Change& change) {
    out_ << fmt::format("<p>Change <code>{}:{}</code> {}</p>\n", escaped(change.file), change.line,
                        escaped(change.text));
    if (change.after.empty()) return;
    out_ << "<pre>" << escaped(diff_of(change)) << "</pre>\n";
  }

  void table(const Figures& figures) {
    out_ << "<div class=\"scroll\"><table>\n<caption>" << escaped(figures.caption)
         << "</caption>\n<thead>";
    row("th", figures.head);
    out_ << "</thead>\n<tbody>\n";
    for (std::size_t i = 0; i < figures.rows.size(); ++i) {
      if (figures.left_out > 0 && i == figures.rows.size() / 2)
        out_ << fmt::format("<tr><td colspan=\"{}\">{} steps left out</td></tr>\n",
                            figures.head.size(), figures.left_out);
      row("td", figures.rows[i]);
    }
    out_ << "</tbody>\n</table></div>\n";
  }

  void row(const char* tag, const std::vector<std::string>& cells) {
    out_ << "<tr>";
    for (const auto& cell : cells) out_ << fmt::format("<{0}>{1}</{0}>", tag, escaped(cell));
    out_ << "</tr>\n";
  }

  const Report& report_;
  const RenderOptions& options_;
  std::ostream& out_;
};

}  // namespace

void render_html(const Report& report, const RenderOptions& options, std::ostream& out) {
  Html(report, options, out).print();
}

}  // namespace ddp_doctor
