// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lib/diagnose/facts.h"
#include "lib/report/cells.h"
#include "lib/report/comparison.h"
#include "lib/report/render.h"
#include "lib/report/table.h"
#include "lib/report/verdict.h"
#include "lib/report/wrap.h"

namespace ddp_doctor {
namespace {

// Cut between words.
std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t space = text.rfind(' ', most - 3);
  return text.substr(0, space == std::string::npos ? most - 3 : space) + "...";
}

class TextReport {
 public:
  TextReport(const Report& report, const RenderOptions& style, std::ostream& out)
      : report_(report), style_(style), out_(out) {}

  void print() {
    if (style_.brief) {
      brief();
      return;
    }
    title();
    gradient_table();
    drift_table();
    for (const auto& run : report_.runs) pipeline_table(run);
    outcome_table();
    for (const auto& run : report_.runs) mean_line(run);
    if (report_.purpose == Purpose::kCompare) {
      for (const auto& run : report_.runs) findings_of(run);
    } else {
      ddp_block();
      findings();
    }
    closing();
  }

 private:
  std::string paint(const char* code, const std::string& text) const {
    return style_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }

  void wrapped(const std::string& text, std::size_t indent) {
    print_wrapped(out_, text, indent, indent);
  }

  // Long runs: the first and the last steps; JSON has them all.
  static constexpr std::size_t kRowsAtEachEnd = 10;
  static bool hidden(std::size_t row, std::size_t rows) {
    return rows > 2 * kRowsAtEachEnd + 1 && row >= kRowsAtEachEnd && row < rows - kRowsAtEachEnd;
  }

  // What a gate says: what fails it, what could not be decided, and the verdict. Figures that no
  // two runs share (times, costs, which stand in advice too) are left to the whole report.
  void brief() {
    std::vector<FindingParameter> advice;
    bool silent = true;
    for (const auto& [run, findings] : judged_runs(report_)) {
      for (const auto& finding : findings) {
        if (finding.severity == Severity::kAdvice && style_.fail_on != Severity::kAdvice) {
          advice.push_back({finding.rule + " " + finding.name, {}});
          continue;
        }
        silent = false;
        print_finding(finding, 0);
        wrapped("Do: " + finding.prescription.text, 2);
        if (!finding.consequences.empty()) out_ << "  which leads to\n";
        for (const auto& consequence : finding.consequences) print_finding(consequence, 4);
      }
      if (run.health() == Health::kInconclusive) {
        for (const auto& note : run.notes) wrapped("note: " + note, 0);
      }
    }
    if (!silent && !advice.empty()) wrapped("advice: " + list_of(advice, 20), 0);
    closing();
  }

  // ---- sections
  // -------------------------------------------------------------------------------------------------
  void title() {
    const auto& run = report_.runs.front();
    const auto of = [&](const char* key) {
      const auto found = run.environment.find(key);
      return found == run.environment.end() ? std::string() : found->second;
    };
    std::string what = report_.program;
    if (report_.purpose == Purpose::kCompare) {
      what.clear();
      for (const auto& other : report_.runs) what += (what.empty() ? "" : " | ") + other.label;
    }
    out_ << paint("1", fmt::format("ddp-doctor {}: {}", report_.tool_version, what)) << '\n';
    const std::string backend = of("backend");
    const std::string ranks = count_of(static_cast<std::size_t>(report_.world_size), "rank");
    wrapped(fmt::format("{}{}{}, {}; {}",
                        run.whole() ? ranks : ranks_of(run.ranks.list()) + " of " + ranks,
                        backend.empty() ? "" : ", ", backend, torch_of(report_), of("summary")),
            0);
    if (const auto note = of("note"); !note.empty()) wrapped(note, 0);
  }

  // One line per step, one or more cells per run.
  template <class Fill>
  void side_by_side(const std::string& caption, std::vector<std::string> head, Fill fill) {
    const auto numbers = cells::step_numbers(report_);
    if (numbers.empty()) return;
    out_ << '\n' << paint("1", caption) << '\n';
    head.insert(head.begin(), "step");
    Table table(std::move(head));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (hidden(i, numbers.size())) {
        if (i == kRowsAtEachEnd)
          table.add_note(
              "...", fmt::format("{} steps left out here", numbers.size() - 2 * kRowsAtEachEnd));
        continue;
      }
      std::vector<std::string> row = {std::to_string(numbers[i])};
      for (const auto& run : report_.runs) fill(row, cells::row_at(run, numbers[i]));
      table.add(std::move(row));
    }
    table.print(out_);
  }

  void gradient_table() {
    std::vector<std::string> head;
    for (const auto& run : report_.runs) {
      head.push_back(run.label);
      head.emplace_back("synced");
    }
    side_by_side("Table 1 - gradient norm per rank at optimizer.step", head,
                 [](auto& row, const StepRow* seen) {
                   row.push_back(seen == nullptr ? "" : cells::gradient_norm(*seen));
                   row.push_back(seen == nullptr ? "" : cells::synced(*seen));
                 });
  }

  void drift_table() {
    std::vector<std::string> head;
    for (const auto& run : report_.runs) head.push_back(run.label);
    side_by_side("Table 2 - weight drift max|W_i - W_j| after each step", head,
                 [](auto& row, const StepRow* seen) {
                   row.push_back(seen == nullptr ? "" : cells::drift(*seen));
                 });
  }

  void pipeline_table(const RunReport& run) {
    const bool examined = &run == &report_.runs.front() && report_.purpose != Purpose::kCompare;
    out_ << '\n' << paint("1", run.label + (examined ? " (examined)" : "")) << '\n';
    for (const auto& change : run.changes) wrapped("changed: " + change, 0);
    for (const auto& reason : run.unapplied) wrapped("not applied: " + reason, 0);
    Table table({"step", "loss per rank", "grad_synced", "weight drift", "unused", "ms"});
    const auto& rows = run.steps_table;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (hidden(i, rows.size())) {
        if (i == kRowsAtEachEnd)
          table.add_note("...",
                         fmt::format("{} steps left out here", rows.size() - 2 * kRowsAtEachEnd));
        continue;
      }
      const auto& row = rows[i];
      table.add({std::to_string(row.step), cells::loss(row), cells::synced(row), cells::drift(row),
                 cells::unused(run, row),
                 row.milliseconds ? fmt::format("{:.3f}", *row.milliseconds) : "-"});
    }
    if (!run.completed)
      table.add_note(run.outcome_step > 0 ? std::to_string(run.outcome_step) : "-",
                     shortened(run.outcome, 160));
    if (!rows.empty() || !run.completed) table.print(out_);
    unused_names(run);
    for (const auto& note : run.notes) wrapped("note: " + note, 0);
  }

  void unused_names(const RunReport& run) {
    std::vector<FindingParameter> names;
    for (const auto& tensor : run.tensors) {
      if (!tensor.ddp_index) continue;
      const bool somewhere = std::any_of(
          run.steps_table.begin(), run.steps_table.end(),
          [&](const StepRow& row) { return cells::leaves_unused(row, *tensor.ddp_index); });
      if (somewhere) names.push_back({tensor.name, tensor.ddp_index});
    }
    if (!names.empty()) wrapped("unused: " + list_of(names, 20), 0);
  }

  void outcome_table() {
    if (report_.runs.size() < 2) return;
    out_ << '\n' << paint("1", "Side by side") << '\n';
    const bool costs = std::any_of(report_.runs.begin(), report_.runs.end(),
                                   [](const auto& run) { return run.cost && run.cost->pairs > 1; });
    std::vector<std::string> head = {"strategy", "steps", "ms per step", "range"};
    if (costs) head.emplace_back("relative");
    head.emplace_back("outcome");
    Table table(std::move(head));
    for (const auto& run : report_.runs) {
      const auto& time = run.step_time;
      std::vector<std::string> row = {
          run.label, std::to_string(run.steps_seen()),
          time ? fmt::format("{:.3f}", time->median_ms) : "-",
          time ? fmt::format("{:.3f} .. {:.3f}", time->low_ms, time->high_ms) : "-"};
      if (costs) row.push_back(cells::cost(run));
      row.push_back(shortened(run.outcome, 60));
      table.add(std::move(row));
    }
    table.print(out_);
    for (const auto& run : report_.runs) {
      if (!run.cost || run.cost->pairs < 2) continue;
      const auto& base = report_.runs[static_cast<std::size_t>(run.cost->base)];
      wrapped(fmt::format("{}: {}", run.label, describe(*run.cost, base.label)), 0);
    }
  }

  void mean_line(const RunReport& run) {
    if (!run.mean_check) return;
    out_ << fmt::format(
        "{}: gradient at step {} against the mean of the local ones: relative error {:.2e}\n",
        run.label, run.mean_check->step, run.mean_check->relative_error);
  }

  void ddp_block() {
    const auto& run = report_.runs.front();
    for (const char* moment : {"construction", "runtime"}) {
      bool first = true;
      for (const auto& field : run.ddp) {
        if (field.moment != moment) continue;
        if (first) {
          out_ << '\n'
               << paint("1", field.moment == "construction" ? "DDP initialized with"
                                                            : "DDP at the last sampled iteration")
               << '\n';
        }
        first = false;
        out_ << field.key << ": " << field.value.substr(0, field.value.find('\n')) << '\n';
      }
    }
  }

  const char* color_of(Severity severity) const {
    return severity == Severity::kError ? "1;31" : severity == Severity::kWarning ? "1;33" : "1;36";
  }

  void print_finding(const Finding& finding, std::size_t indent) {
    const std::string pad(indent, ' ');
    std::string head = fmt::format("{} {}", finding.rule, finding.name);
    out_ << pad << paint(color_of(finding.severity), head)
         << fmt::format(": {}, {}; {}", name_of(finding.severity), name_of(finding.certainty),
                        ranks_of(finding.ranks))
         << (finding.first_step ? fmt::format(", from step {}", *finding.first_step) : "") << '\n';
    wrapped(finding.message, indent + 2);
    if (finding.where) {
      std::string place = fmt::format("at {}:{}", finding.where->file, finding.where->line);
      for (std::size_t i = 0; i < finding.where->via.size(); ++i)
        place += (i == 0 ? ", through " : ", ") + finding.where->via[i];
      wrapped(place, indent + 2);
    }
  }

  void print_change(const Change& change) {
    out_ << fmt::format("  Change {}:{}{}\n", change.file, change.line,
                        change.text.empty() ? "" : ":");
    if (!change.text.empty()) wrapped(change.text, 4);
    if (change.after.empty()) return;
    print_lines("    - ", change.before);
    print_lines("    + ", change.after);
  }

  void print_lines(const char* mark, const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out_ << mark << line << '\n';
  }

  // Of one run among several that are compared.
  void findings_of(const RunReport& run) {
    out_ << '\n' << paint("1", "Findings: " + run.label) << '\n';
    if (run.diagnosis.findings.empty()) out_ << (run.clean() ? "none\n" : run.outcome + "\n");
    for (const auto& finding : run.diagnosis.findings) {
      print_finding(finding, 0);
      wrapped("Do: " + finding.prescription.text, 2);
    }
  }

  void findings() {
    out_ << '\n' << paint("1", "Findings") << '\n';
    if (report_.findings.empty()) out_ << "none\n";
    for (const auto& finding : report_.findings) {
      print_finding(finding, 0);
      wrapped("Do: " + finding.prescription.text, 2);
      if (finding.proof) wrapped("Proof: " + finding.proof->text, 2);
      if (finding.change) print_change(*finding.change);
      if (!finding.consequences.empty()) out_ << "  which leads to\n";
      for (const auto& consequence : finding.consequences) print_finding(consequence, 4);
    }
    for (const auto& [finding, suppression, reason] : report_.suppressed)
      wrapped(fmt::format("suppressed: {} {}: {}", finding.rule, finding.name, reason), 0);
    std::vector<std::pair<std::string, std::string>> by_reason;  // reason, rules
    for (const auto& skipped : report_.runs.front().diagnosis.not_checked) {
      const auto known = std::find_if(by_reason.begin(), by_reason.end(),
                                      [&](const auto& e) { return e.first == skipped.reason; });
      if (known == by_reason.end()) {
        by_reason.emplace_back(skipped.reason, skipped.rule);
      } else {
        known->second += ", " + skipped.rule;
      }
    }
    for (const auto& [reason, rules] : by_reason)
      wrapped(fmt::format("not checked: {}: {}", rules, reason), 0);
  }

  void closing() {
    const auto& run = report_.runs.front();
    for (const auto& remark : remarks_on_suppressions(report_)) out_ << remark << '\n';
    if (!style_.brief) out_ << '\n';
    if (run.probe_ms && !style_.brief) {
      wrapped(fmt::format("The examination itself cost {:.3f} ms per step (digests and record), "
                          "left out of the times above.",
                          *run.probe_ms),
              0);
    }
    if (report_.purpose == Purpose::kCompare) {
      wrapped("Difference: " + report_.difference, 0);
      out_ << "Verdict: " << verdict_of(report_, style_.fail_on) << '\n';
      return;
    }
    for (std::size_t i = 1; report_.purpose == Purpose::kFix && i < report_.runs.size(); ++i) {
      const auto& run = report_.runs[i];
      wrapped(fmt::format("With {}: {}{}", run.label, name_of(run.health()),
                          run.clean() ? ", every finding at warning or above is gone" : ""),
              0);
    }
    const Health health = report_.health();
    const char* color = health == Health::kHealthy ? "1;32"
                        : health == Health::kSick  ? "1;31"
                                                   : "1;33";
    out_ << paint(color, "Verdict: " + verdict_of(report_, style_.fail_on)) << '\n';
  }

  const Report& report_;
  const RenderOptions& style_;
  std::ostream& out_;
};

}  // namespace

void render_text(const Report& report, const RenderOptions& options, std::ostream& out) {
  TextReport(report, options, out).print();
}

}  // namespace ddp_doctor
