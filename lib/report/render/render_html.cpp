// SPDX-License-Identifier: BSD-3-Clause
// One file that a browser shows as it is: it loads nothing, which the policy in its head enforces,
// and is readable without scripts. Its only script sorts tables.
#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/report/compare/change.h"
#include "lib/report/plot/markup.h"
#include "lib/report/plot/plots.h"
#include "lib/report/render/evidence.h"
#include "lib/report/render/html_style.h"
#include "lib/report/render/render.h"
#include "lib/report/value/figures.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

// Longer evidence is collapsed; a browser expands it without scripts.
constexpr std::size_t kLongEvidence = 240;
// Cells that are sentences rather than figures.
constexpr std::size_t kWords = 28;

class Html {
 public:
  Html(const Report& report, const RenderOptions& options, std::ostream& out)
      : report_(report), options_(options), out_(out) {}

  void print() {
    const std::string verdict = verdict_of(report_, options_.fail_on);
    const char* health = report_.health() == Health::kHealthy        ? "healthy"
                         : report_.health() == Health::kInconclusive ? "warning"
                                                                     : "error";
    out_ << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
         << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
         << "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n"
         << "<title>ddp-doctor: " << escaped(verdict) << "</title>\n<style>" << kHtmlStyle
         << plot::style() << "</style>\n</head>\n<body>\n<main>\n";
    out_ << fmt::format("<h1 class=\"{}\">{}</h1>\n", health, escaped(verdict));
    out_ << fmt::format("<p class=\"facts\">{}, {}, {}; examined by ddp-doctor {}</p>\n",
                        escaped(report_.program),
                        count_of(static_cast<std::size_t>(report_.world_size), "rank"),
                        escaped(torch_of(report_)), report_.tool_version);
    for (const auto& remark : remarks_on_suppressions(report_)) fact(remark);
    if (!report_.difference.empty())
      out_ << "<p><strong>Difference:</strong> " << escaped(report_.difference) << "</p>\n";
    findings();
    for (const auto& run : report_.runs) {
      if (!run.parity) continue;
      for (const auto& note : run.parity->notes) fact(note);
    }
    plots();
    out_ << "<h2>Figures</h2>\n";
    for (const auto& figures : figures_of(report_)) table(figures);
    for (const auto& [run, findings] : judged_runs(report_)) {
      Figures unused = unused_parameters(run);
      if (report_.runs.size() > 1) unused.caption += ": " + run.label;
      if (!unused.rows.empty()) table(unused);
    }
    for (const auto& [run, findings] : judged_runs(report_)) {
      Figures fields = ddp_fields(run);
      if (report_.runs.size() > 1) fields.caption += ": " + run.label;
      if (!fields.rows.empty()) table(fields);
    }
    out_ << "</main>\n<script>" << kHtmlScript << "</script>\n</body>\n</html>\n";
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
    out_ << fmt::format(
        "<article class=\"{0}\">\n<h3><span class=\"{0}\">{1} {2}</span>: {0}, {3}</h3>\n",
        name_of(finding.severity), finding.rule, finding.name, name_of(finding.certainty));
    out_ << fmt::format(
        "<p class=\"of\">{}{}</p>\n<dl>\n", ranks_of(finding.ranks),
        finding.first_step ? fmt::format(", from step {}", *finding.first_step) : "");
    entry("Cause", escaped(finding.message));
    if (!finding.evidence.empty()) entry("Evidence", evidence(finding.evidence));
    if (finding.where) entry("Place", place(*finding.where));
    entry("Do", escaped(finding.prescription.text));
    if (finding.change) entry("Change", change(*finding.change));
    if (finding.proof) entry("Tested", escaped(finding.proof->text));
    out_ << "</dl>\n";
    if (!finding.consequences.empty()) out_ << "<p class=\"of\">which leads to</p>\n";
    for (const auto& consequence : finding.consequences) card(consequence);
    out_ << "</article>\n";
  }

  void entry(const char* name, const std::string& markup) {
    if (!markup.empty()) out_ << fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, markup);
  }

  static std::string evidence(const nlohmann::ordered_json& all) {
    std::string markup = "<dl class=\"evidence\">";
    for (const auto& [key, value] : all.items()) {
      const std::string text = in_words(value);
      markup += fmt::format("<dt>{}</dt><dd>", escaped(label_of(key)));
      if (text.size() <= kLongEvidence) {
        markup += escaped(text);
      } else {
        const bool lines = value.is_object() || value.is_string();
        markup += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>",
                              value.is_structured() ? fmt::format("show {}", value.size()) : "show",
                              escaped(lines ? in_words(value, "\n") : text));
      }
      markup += "</dd>";
    }
    return markup + "</dl>";
  }

  static std::string place(const Where& where) {
    std::string markup = fmt::format("<code>{}:{}</code>", escaped(where.file), where.line);
    for (const auto& via : where.via)
      markup += fmt::format("<br/><span class=\"of\">via <code>{}</code></span>", escaped(via));
    return markup;
  }

  static std::string change(const Change& change) {
    std::string markup = fmt::format("<code>{}:{}</code> {}", escaped(change.file), change.line,
                                     escaped(change.text));
    if (!change.after.empty())
      markup += fmt::format("<pre tabindex=\"0\">{}</pre>", escaped(diff_of(change)));
    return markup;
  }

  // Narrow plots in columns, wide ones below.
  void plots() {
    const auto all = plots_of(report_);
    out_ << "<h2>Plots</h2>\n<div class=\"columns\">\n";
    for (const auto& plot : all) {
      if (!plot.wide) figure(plot);
    }
    out_ << "</div>\n";
    for (const auto& plot : all) {
      if (plot.wide) figure(plot);
    }
  }

  void figure(const Plot& plot) {
    out_ << fmt::format("<figure{}>\n<figcaption>{}</figcaption>\n",
                        plot.wide ? " class=\"wide\"" : "", escaped(plot.caption));
    if (plot.wide && !plot.drawing.svg.empty()) {
      out_ << fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">",
                          escaped(plot.caption))
           << plot.drawing.svg << "</div>\n";
    } else {
      out_ << plot.drawing.svg;
    }
    if (!plot.drawing.keys.empty()) {
      out_ << "<ul class=\"legend\">";
      for (const auto& [swatch, label] : plot.drawing.keys)
        out_ << "<li>" << swatch << "<span>" << escaped(label) << "</span></li>";
      out_ << "</ul>\n";
    }
    for (const auto& note : plot.notes) out_ << "<p>" << escaped(note) << "</p>\n";
    out_ << "</figure>\n";
  }

  void fact(const std::string& text) { out_ << "<p class=\"facts\">" << escaped(text) << "</p>\n"; }

  // With scripts, a table of several rows can be sorted.
  void table(const Figures& figures) {
    std::vector<bool> words(figures.head.size());
    for (const auto& row : figures.rows) {
      for (std::size_t i = 0; i < row.size(); ++i) words[i] = words[i] || row[i].size() > kWords;
    }
    out_ << fmt::format(
        "<h3 id=\"table{0}\">{1}</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" "
        "aria-labelledby=\"table{0}\"><table aria-labelledby=\"table{0}\"{2}>\n<thead><tr>",
        ++tables_, escaped(figures.caption), figures.rows.size() > 1 ? " class=\"sortable\"" : "");
    for (std::size_t i = 0; i < figures.head.size(); ++i)
      out_ << fmt::format("<th scope=\"col\"{}>{}</th>", words[i] ? " class=\"words\"" : "",
                          escaped(figures.head[i]));
    out_ << "</tr></thead>\n<tbody>\n";
    for (std::size_t i = 0; i < figures.rows.size(); ++i) {
      if (figures.omitted > 0 && i == figures.rows.size() / 2)
        out_ << fmt::format("<tr><td colspan=\"{}\">{} steps omitted</td></tr>\n",
                            figures.head.size(), figures.omitted);
      row(figures.rows[i], words);
    }
    out_ << "</tbody>\n</table></div>\n";
  }

  void row(const std::vector<std::string>& cells, const std::vector<bool>& words) {
    out_ << "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string tag = i == 0 ? "th" : "td";
      out_ << fmt::format("<{0}{1}{2}>{3}</{0}>", tag, i == 0 ? " scope=\"row\"" : "",
                          words[i] ? " class=\"words\"" : "", escaped(cells[i]));
    }
    out_ << "</tr>\n";
  }

  const Report& report_;
  const RenderOptions& options_;
  std::ostream& out_;
  int tables_ = 0;
};

}  // namespace

void render_html(const Report& report, const RenderOptions& options, std::ostream& out) {
  Html(report, options, out).print();
}

}  // namespace ddp_doctor
