// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/report/compare/change.h"
#include "lib/report/render/render.h"
#include "lib/report/value/figures.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\\|");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

class Markdown {
 public:
  Markdown(const Report& report, std::optional<Severity> fail_on, std::ostream& out)
      : report_(report), fail_on_(fail_on), out_(out) {}

  void print(bool brief) {
    out_ << "### ddp-doctor: " << verdict_of(report_, fail_on_) << '\n';
    if (!report_.difference.empty()) out_ << "\n**Difference:** " << report_.difference << '\n';
    findings();
    for (const auto& remark : remarks_on_suppressions(report_)) out_ << "- " << remark << '\n';
    if (!brief) {
      for (const auto& figures : figures_of(report_)) table(figures);
    }
    out_ << fmt::format("\n{}, {}, {}, examined by ddp-doctor {}.\n", report_.program,
                        count_of(static_cast<std::size_t>(report_.world_size), "rank"),
                        torch_of(report_), report_.tool_version);
  }

 private:
  // A page shows long tables on demand; it wants a blank line around them.
  void table(const Figures& figures) {
    if (figures.by_step) {
      out_ << "\n<details><summary>" << figures.caption << "</summary>\n\n";
    } else {
      out_ << "\n**" << figures.caption << "**\n\n";
    }
    line(figures.head);
    out_ << '|';
    for (std::size_t i = 0; i < figures.head.size(); ++i) out_ << (i == 0 ? "---:|" : " ---: |");
    out_ << '\n';
    for (std::size_t i = 0; i < figures.rows.size(); ++i) {
      if (figures.omitted > 0 && i == figures.rows.size() / 2)
        line({"...", fmt::format("{} steps omitted", figures.omitted)});
      line(figures.rows[i]);
    }
    if (figures.by_step) out_ << "\n</details>\n";
  }

  void line(const std::vector<std::string>& cells) {
    out_ << '|';
    for (const auto& cell : cells) out_ << ' ' << escaped(cell) << " |";
    out_ << '\n';
  }

  void findings() {
    out_ << '\n';
    for (const auto& [run, findings] : judged_runs(report_)) {
      for (const auto& finding : findings) {
        out_ << fmt::format("- {}: **{} {}** ({}): {}", run.label, finding.rule, finding.name,
                            name_of(finding.severity), escaped(finding.message));
        if (finding.where)
          out_ << fmt::format(" `{}:{}`", finding.where->file, finding.where->line);
        out_ << " *" << escaped(finding.prescription.text) << '*';
        if (finding.proof) out_ << " " << escaped(finding.proof->text);
        out_ << '\n';
        if (finding.change && !finding.change->after.empty())
          out_ << fmt::format("\n  `{}:{}`\n\n  ```diff\n{}  ```\n", finding.change->file,
                              finding.change->line, diff_of(*finding.change, "  "));
      }
    }
  }

  const Report& report_;
  std::optional<Severity> fail_on_;
  std::ostream& out_;
};

}  // namespace

void render_markdown(const Report& report, const RenderOptions& options, std::ostream& out) {
  Markdown(report, options.fail_on, out).print(options.brief);
}

}  // namespace ddp_doctor
