#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/report/cells.h"
#include "lib/report/comparison.h"
#include "lib/report/render.h"
#include "lib/report/verdict.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMostRows = 40;

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\\|");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

class Markdown {
 public:
  Markdown(const Report& report, std::ostream& out) : report_(report), out_(out) {}

  void print(bool brief) {
    if (brief) {
      out_ << "### ddp-doctor: " << verdict_of(report_) << '\n';
    } else {
      gradients();
      drift();
      losses();
      outcomes();
    }
    findings();
    if (!report_.difference.empty()) out_ << "\n**Difference:** " << report_.difference << '\n';
    out_ << fmt::format("\n{}, {} {}.\n",
                        count_of(static_cast<std::size_t>(report_.world_size), "rank"),
                        "examined by ddp-doctor", report_.tool_version);
  }

 private:
  using Row = std::vector<std::string>;

  void table(const std::string& caption, const Row& head, const std::vector<Row>& rows) {
    if (rows.empty()) return;
    out_ << "\n**" << caption << "**\n\n";
    line(head);
    out_ << '|';
    for (std::size_t i = 0; i < head.size(); ++i) out_ << (i == 0 ? "---:|" : " ---: |");
    out_ << '\n';
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows.size() > kMostRows && i >= kMostRows / 2 && i < rows.size() - kMostRows / 2) {
        if (i == kMostRows / 2)
          line({"...", fmt::format("{} steps left out", rows.size() - kMostRows)});
        continue;
      }
      line(rows[i]);
    }
  }

  void line(const Row& cells) {
    out_ << '|';
    for (const auto& cell : cells) out_ << ' ' << escaped(cell) << " |";
    out_ << '\n';
  }

  std::vector<Row> by_step(
      const std::function<void(Row&, const RunReport&, const StepRow*)>& fill) {
    std::vector<Row> rows;
    for (const auto step : cells::step_numbers(report_)) {
      Row row = {std::to_string(step)};
      for (const auto& run : report_.runs) fill(row, run, cells::row_at(run, step));
      rows.push_back(std::move(row));
    }
    return rows;
  }

  std::size_t ranks() const { return static_cast<std::size_t>(report_.world_size); }

  // One column per rank where there are few.
  void per_rank(Row& row, const StepRow* seen,
                const std::vector<std::optional<double>> StepRow::*figures) const {
    if (ranks() > 4) {
      row.push_back(seen == nullptr ? "" : cells::by_rank(seen->*figures));
      return;
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const bool there = seen != nullptr && rank < (seen->*figures).size();
      row.push_back(there ? cells::figure((seen->*figures)[rank]) : "");
    }
  }
  void per_rank_head(Row& head, const std::string& label) const {
    if (ranks() > 4) {
      head.push_back(label);
      return;
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank)
      head.push_back(fmt::format("{} r{}", label, rank));
  }

  void gradients() {
    Row head = {"step"};
    for (const auto& run : report_.runs) {
      per_rank_head(head, run.label);
      head.emplace_back("synced");
    }
    table("Gradient norm per rank at optimizer.step", head,
          by_step([&](Row& row, const RunReport&, const StepRow* seen) {
            per_rank(row, seen, &StepRow::gradient_norm);
            row.push_back(seen == nullptr ? "" : cells::synced(*seen));
          }));
  }

  void drift() {
    Row head = {"step"};
    for (const auto& run : report_.runs) head.push_back(run.label);
    table("Weight drift, max abs(W_i - W_j) over all ranks, after each step", head,
          by_step([](Row& row, const RunReport&, const StepRow* seen) {
            row.push_back(seen == nullptr ? "" : cells::drift(*seen));
          }));
  }

  void losses() {
    Row head = {"step"};
    for (const auto& run : report_.runs) {
      per_rank_head(head, run.label);
      head.emplace_back("unused");
    }
    table("Loss per rank, and indices of unused parameters", head,
          by_step([&](Row& row, const RunReport&, const StepRow* seen) {
            per_rank(row, seen, &StepRow::loss);
            row.push_back(seen == nullptr ? "" : cells::unused(*seen));
          }));
  }

  void outcomes() {
    std::vector<Row> rows;
    for (const auto& run : report_.runs) {
      rows.push_back({run.label, std::to_string(run.steps_seen()),
                      run.step_time ? fmt::format("{:.3f}", run.step_time->median_ms) : "-",
                      cells::cost(run), run.outcome});
    }
    table("Outcome", {"run", "steps", "ms per step", "relative", "outcome"}, rows);
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
          out_ << fmt::format("\n  `{}:{}`\n\n  ```diff\n{}{}  ```\n", finding.change->file,
                              finding.change->line, marked("-", finding.change->before),
                              marked("+", finding.change->after));
      }
    }
  }

  static std::string marked(const char* mark, const std::string& text) {
    std::string out;
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const auto end = std::min(text.find('\n', begin), text.size());
      out += fmt::format("  {}{}\n", mark, text.substr(begin, end - begin));
      begin = end + 1;
    }
    return out;
  }

  const Report& report_;
  std::ostream& out_;
};

}  // namespace

void render_markdown(const Report& report, const RenderOptions& options, std::ostream& out) {
  Markdown(report, out).print(options.brief);
}

}  // namespace ddp_doctor
