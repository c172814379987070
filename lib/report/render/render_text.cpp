// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/report/render/render.h"
#include "lib/report/render/text.h"
#include "lib/report/render/wrap.h"
#include "lib/report/value/cells.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

class TextReport {
 public:
  TextReport(const Report& report, const RenderOptions& options, std::ostream& out)
      : report_(report), options_(options), out_(out) {}

  // In a terminal the last lines are read first, in a file the first ones.
  void print() {
    title();
    if (options_.terminal) details();
    findings();
    if (!options_.terminal) details();
    out_ << '\n';
    closing();
  }

  // What a gate says: what fails it, what could not be decided, and the verdict. No figures that
  // differ from run to run (times, costs, which stand in advice too): the whole report has them.
  void print_brief() {
    std::vector<FindingParameter> advice;
    bool silent = true;
    for (const auto& [run, findings] : judged_runs(report_)) {
      for (const auto& finding : findings) {
        if (finding.severity == Severity::kAdvice && options_.fail_on != Severity::kAdvice) {
          advice.push_back({finding.rule + " " + finding.name, {}});
          continue;
        }
        silent = false;
        text::print_finding(finding, false, options_, out_);
      }
      if (run.health() == Health::kInconclusive) {
        for (const auto& note : run.notes) {
          if (const auto rest = beyond_verdict(note); !rest.empty()) wrapped("note: " + rest);
        }
      }
    }
    if (!silent && !advice.empty()) wrapped("advice: " + list_of(advice, 20));
    closing();
  }

 private:
  void wrapped(const std::string& text) { print_wrapped(out_, text, 0, 2); }

  // What the verdict, below, does not say: it may quote the first sentence of a note.
  std::string beyond_verdict(const std::string& note) const {
    const auto end = note.find(". ");
    if (!verdict_of(report_, options_.fail_on).ends_with(": " + note.substr(0, end))) return note;
    return end == std::string::npos ? std::string() : note.substr(end + 2);
  }

  bool comparison() const { return report_.purpose == Purpose::kCompare; }

  void title() {
    const auto& run = report_.runs.front();
    const auto of = [&](const char* key) {
      const auto found = run.environment.find(key);
      return found == run.environment.end() ? std::string() : found->second;
    };
    std::string what = report_.program;
    if (comparison()) {
      what.clear();
      for (const auto& other : report_.runs) what += (what.empty() ? "" : " | ") + other.label;
    }
    out_ << text::bold(options_, fmt::format("ddp-doctor {}: {}", report_.tool_version, what))
         << '\n';
    const std::string backend = of("backend");
    const std::string ranks = count_of(static_cast<std::size_t>(report_.world_size), "rank");
    wrapped(fmt::format("{}{}{}, {}; {}",
                        run.whole() ? ranks : ranks_of(run.ranks.list()) + " of " + ranks,
                        backend.empty() ? "" : ", ", backend, torch_of(report_), of("summary")));
    if (const auto note = of("note"); !note.empty()) wrapped(note);
  }

  void details() {
    if (!comparison()) text::print_mesh(report_.runs.front(), options_, out_);
    text::print_steps(report_, options_, out_);
    text::print_parity(report_, options_, out_);
    text::print_side_by_side(report_, options_, out_);
    if (options_.verbose) {
      mean_check();
      for (const auto& run : report_.runs) text::print_all_steps(run, options_, out_);
    }
    const auto& run = report_.runs.front();
    if (!comparison()) {
      text::print_ddp_fields(run, "construction", "DDP initialized with", options_, out_);
      if (options_.verbose)
        text::print_ddp_fields(run, "runtime", "DDP at the last sampled iteration", options_, out_);
    }
    out_ << '\n';
    notes();
    if (!comparison()) text::print_not_checked(run, out_);
    if (report_.purpose == Purpose::kRun && !run.parity && report_.health() == Health::kHealthy &&
        report_.program.ends_with(".py"))
      wrapped(
          "not checked: whether the ranks compute what one process would; `ddp-doctor parity` "
          "compares that");
    costs();
  }

  // With several runs, a column of their table has it.
  void mean_check() {
    const auto& check = report_.runs.front().mean_check;
    if (report_.runs.size() > 1 || !check) return;
    out_ << fmt::format(
        "{}: gradient at step {} against the mean of the local ones: relative error {:.1e}\n",
        report_.runs.front().label, check->step, check->relative_error);
  }

  // What a strategy did to its run, and what the records lack; once if several runs have it.
  void notes() {
    std::vector<std::string> printed;
    for (const auto& run : report_.runs) {
      std::vector<std::string> lines;
      if (run.parity) lines = run.parity->notes;
      for (const auto& change : run.changes) lines.push_back("changed: " + change);
      for (const auto& reason : run.unapplied) lines.push_back("not applied: " + reason);
      for (const auto& note : run.notes) {
        if (const auto rest = beyond_verdict(note); !rest.empty()) lines.push_back("note: " + rest);
      }
      for (const auto& line : lines) {
        if (std::find(printed.begin(), printed.end(), line) != printed.end()) continue;
        printed.push_back(line);
        wrapped(&run == &report_.runs.front() ? line : run.label + ": " + line);
      }
    }
  }

  void costs() {
    const auto& run = report_.runs.front();
    const bool alone = report_.runs.size() == 1;
    if (alone && run.step_time) {
      const auto& time = *run.step_time;
      wrapped(fmt::format("A step took {} ms (median of {}, {} to {}) without the examination.",
                          cells::milliseconds(time.median_ms, time), count_of(time.steps, "step"),
                          cells::milliseconds(time.low_ms, time),
                          cells::milliseconds(time.high_ms, time)));
    }
    if (run.probe_ms)
      wrapped(fmt::format("The examination itself cost {} ms per step{}.",
                          cells::milliseconds(*run.probe_ms, 2),
                          alone ? "" : ", not included in the times above"));
  }

  void findings() {
    if (!comparison()) {
      text::print_findings(report_, options_, out_);
      return;
    }
    for (const auto& run : report_.runs) text::print_findings_of(run, options_, out_);
  }

  void closing() {
    for (const auto& remark : remarks_on_suppressions(report_)) out_ << remark << '\n';
    const std::string verdict = "Verdict: " + verdict_of(report_, options_.fail_on);
    if (comparison()) {
      wrapped("Difference: " + report_.difference);
      out_ << verdict << '\n';
      return;
    }
    for (std::size_t i = 1; report_.purpose == Purpose::kFix && i < report_.runs.size(); ++i) {
      const auto& run = report_.runs[i];
      wrapped(fmt::format("With {}: {}{}", run.label, name_of(run.health()),
                          run.clean() ? ", every finding at warning or above is gone" : ""));
    }
    const Health health = report_.health();
    const char* color = health == Health::kHealthy ? "1;32"
                        : health == Health::kSick  ? "1;31"
                                                   : "1;33";
    out_ << (options_.color ? fmt::format("\x1b[{}m{}\x1b[0m", color, verdict) : verdict) << '\n';
  }

  const Report& report_;
  const RenderOptions& options_;
  std::ostream& out_;
};

}  // namespace

void render_text(const Report& report, const RenderOptions& options, std::ostream& out) {
  TextReport text(report, options, out);
  if (options.brief) {
    text.print_brief();
  } else {
    text.print();
  }
}

}  // namespace ddp_doctor
