// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/report/compare/comparison.h"
#include "lib/report/render/table.h"
#include "lib/report/render/text.h"
#include "lib/report/render/wrap.h"
#include "lib/report/value/cells.h"
#include "lib/report/value/figures.h"
#include "lib/report/value/fold.h"

namespace ddp_doctor::text {
namespace {

using Row = std::vector<std::string>;

bool any_unused(const RunReport& run) {
  return std::any_of(run.steps_table.begin(), run.steps_table.end(), [](const StepRow& row) {
    const auto used_all = [](const auto& list) { return list.empty(); };
    if (row.many)
      return std::any_of(row.many->unused.begin(), row.many->unused.end(),
                         [](const auto& entry) { return !entry.first.empty(); });
    return !std::all_of(row.unused.begin(), row.unused.end(), used_all);
  });
}

// "unused: orphan.weight (index 0) and orphan.bias (index 1)", what the indices in a table mean.
std::string names_of_unused(const RunReport& run) {
  std::vector<FindingParameter> names;
  for (const auto& tensor : run.tensors) {
    if (!tensor.ddp_index) continue;
    const bool somewhere = std::any_of(
        run.steps_table.begin(), run.steps_table.end(),
        [&](const StepRow& row) { return cells::leaves_unused(row, *tensor.ddp_index); });
    if (somewhere) names.push_back({tensor.name, tensor.ddp_index});
  }
  return names.empty() ? "" : "unused: " + list_of(names, 20);
}

std::string norms_of(const Fold& fold, const RunReport& run) {
  if (fold.size() == 1) return cells::gradient_norm(run.steps_table[fold.first]);
  Range all;
  for (std::size_t i = fold.first; i <= fold.last; ++i) {
    const auto& row = run.steps_table[i];
    cells::add(all, row.many ? row.many->gradient_norm : cells::range_of(row.gradient_norm));
  }
  const bool partly = all.finite > 0 && all.nonfinite > 0;
  return cells::in_words(all) + (partly ? ", not finite" : "");
}

std::string drift_of(const Fold& fold, const RunReport& run) {
  const auto by_drift = [](const StepRow& a, const StepRow& b) { return a.drift < b.drift; };
  const auto begin = run.steps_table.begin();
  const auto [low, high] =
      std::minmax_element(begin + static_cast<std::ptrdiff_t>(fold.first),
                          begin + static_cast<std::ptrdiff_t>(fold.last) + 1, by_drift);
  const std::string min = cells::drift(*low);
  return low->drift == high->drift ? min : min + " .. " + cells::drift(*high);
}

std::string drift_along(const Fold& fold, const RunReport& run, std::size_t dimension) {
  const std::string first = cells::drift_along(run.steps_table[fold.first], dimension);
  const std::string last = cells::drift_along(run.steps_table[fold.last], dimension);
  return first == last ? first : first + " .. " + last;
}

void add_steps(Table& table, const RunReport& run, std::size_t max_rows, bool unused,
               const std::vector<std::size_t>& along) {
  for (const auto& fold : fold_steps(run, max_rows)) {
    if (fold.omitted) {
      table.add_note("...", fmt::format("{} steps omitted", fold.size()));
      continue;
    }
    const auto& first = run.steps_table[fold.first];
    Row row = {label_of(fold, run), norms_of(fold, run), cells::synced(first), drift_of(fold, run)};
    for (const auto dimension : along) row.push_back(drift_along(fold, run, dimension));
    if (unused) row.push_back(cells::unused(run, first));
    table.add(std::move(row));
  }
}

void add_outcome(Table& table, const RunReport& run) {
  if (run.completed) return;
  table.add_note(run.outcome_step > 0 ? std::to_string(run.outcome_step) : "-", run.outcome);
}

std::string range_of(const StepTime& time) {
  return fmt::format("{} .. {}", cells::milliseconds(time.low_ms, time),
                     cells::milliseconds(time.high_ms, time));
}

}  // namespace

void print_steps(const Report& report, const RenderOptions& options, std::ostream& out) {
  constexpr std::size_t kMaxRows = 12;
  constexpr std::size_t kMinRows = 4;  // of a run
  const auto& runs = report.runs;
  std::size_t rows = 0;
  bool unused = false;
  for (const auto& run : runs) {
    rows += fold_steps(run, kMaxRows).size();
    unused = unused || any_unused(run);
  }
  const bool nothing = std::all_of(runs.begin(), runs.end(), [](const RunReport& run) {
    return run.steps_table.empty() && run.completed;
  });
  if (nothing) return;
  const std::size_t max_rows =
      rows <= kMaxRows ? kMaxRows : std::max(kMinRows, kMaxRows / runs.size());
  Row head = {"step", "gradient norm", "synced", "weight drift"};
  const auto along = runs.front().mesh.replicated_along();
  for (const auto dimension : along)
    head.push_back("along " + name_of(runs.front().mesh, dimension));
  if (unused) head.emplace_back("unused");
  Table table(std::move(head));
  std::vector<std::string> legends;
  for (const auto& run : runs) {
    const bool examined = &run == &runs.front() && report.purpose != Purpose::kCompare;
    if (runs.size() > 1) table.add_heading(run.label + (examined ? " (examined)" : ""));
    add_steps(table, run, max_rows, unused, along);
    add_outcome(table, run);
    std::string legend = names_of_unused(run);
    if (!legend.empty() && std::find(legends.begin(), legends.end(), legend) == legends.end())
      legends.push_back(std::move(legend));
  }
  out << '\n'
      << bold(options,
              "Gradient norm per rank at optimizer.step, and weight drift max|W_i - W_j| after "
              "each step")
      << '\n';
  table.print(out);
  for (const auto& legend : legends) print_wrapped(out, legend, 0, 0);
}

void print_parity(const Report& report, const RenderOptions& options, std::ostream& out) {
  for (const auto& run : report.runs) {
    const Figures steps = parity_steps(run);
    if (steps.rows.empty()) continue;
    const std::string caption = report.runs.size() > 1 ? run.label + ": " : "";
    Table table(steps.head);
    for (const auto& row : steps.rows) table.add(row);
    out << '\n' << bold(options, caption + steps.caption) << '\n';
    table.print(out);
  }
}

void print_mesh(const RunReport& run, const RenderOptions& options, std::ostream& out) {
  constexpr std::size_t kMaxRows = 8;
  constexpr std::size_t kNameWidth = 28;
  const Figures figures = mesh_figures(run);
  if (figures.rows.empty()) return;
  Table table(figures.head);
  for (std::size_t i = 0; i < figures.rows.size(); ++i) {
    if (i == kMaxRows) {
      table.add_note("...", fmt::format("{} more placements; JSON has all of them",
                                        figures.rows.size() - kMaxRows));
      break;
    }
    Row row = figures.rows[i];
    row[1] = shortened(row[1], kNameWidth);
    table.add(std::move(row));
  }
  out << '\n';
  print_wrapped(out, bold(options, figures.caption), 0, 2);
  table.print(out);
}

void print_all_steps(const RunReport& run, const RenderOptions& options, std::ostream& out) {
  constexpr std::size_t kRowsAtEachEnd = 10;
  const auto& rows = run.steps_table;
  const bool cut = rows.size() > 2 * kRowsAtEachEnd + 1;
  Table table({"step", "gradient norm", "loss", "synced", "weight drift", "unused", "ms"});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (cut && i == kRowsAtEachEnd) {
      const std::size_t omitted = rows.size() - 2 * kRowsAtEachEnd;
      table.add_note("...", fmt::format("{} steps omitted; JSON has all of them", omitted));
      i += omitted;
    }
    const auto& row = rows[i];
    table.add({std::to_string(row.step), cells::gradient_norm(row), cells::loss(row),
               cells::synced(row), cells::drift(row), cells::unused(run, row),
               row.milliseconds ? cells::milliseconds(*row.milliseconds) : "-"});
  }
  add_outcome(table, run);
  if (rows.empty() && run.completed) return;
  out << '\n' << bold(options, "Steps of " + run.label) << '\n';
  table.print(out);
}

void print_side_by_side(const Report& report, const RenderOptions& options, std::ostream& out) {
  const auto& runs = report.runs;
  if (runs.size() < 2) return;
  const auto checked = std::find_if(runs.begin(), runs.end(),
                                    [](const auto& run) { return run.mean_check.has_value(); });
  const bool checks = checked != runs.end();
  out << '\n' << bold(options, "Side by side") << '\n';
  Row head = {"strategy", "steps", "ms per step", "range"};
  if (checks) head.emplace_back("grad error");
  head.emplace_back("outcome");
  Table table(std::move(head));
  for (const auto& run : runs) {
    const auto& time = run.step_time;
    Row row = {run.label, std::to_string(run.steps_seen()),
               time ? cells::milliseconds(time->median_ms, *time) : "-",
               time ? range_of(*time) : "-"};
    if (checks)
      row.push_back(run.mean_check ? fmt::format("{:.1e}", run.mean_check->relative_error) : "-");
    // What was raised stands with the steps.
    row.push_back(shortened(run.outcome.substr(0, run.outcome.find(": ")), 40));
    table.add(std::move(row));
  }
  table.print(out);
  if (checks)
    out << fmt::format(
        "grad error: of the synchronized gradient at step {}, relative to the mean of the local "
        "ones\n",
        checked->mean_check->step);
  for (const auto& run : runs) {
    if (!run.cost || run.cost->pairs < 2) continue;
    const auto& base = runs[static_cast<std::size_t>(run.cost->base)];
    print_wrapped(out, fmt::format("{}: {}", run.label, describe(*run.cost, base.label)), 0, 0);
  }
}

void print_ddp_fields(const RunReport& run, const std::string& moment, const std::string& caption,
                      const RenderOptions& options, std::ostream& out) {
  std::map<int, std::vector<std::string>> by_wrapper;
  for (const auto& field : run.ddp) {
    if (field.moment != moment) continue;
    const std::string value = field.value.substr(0, field.value.find('\n'));
    by_wrapper[field.wrapper].push_back(
        fmt::format("{}: {}", field.key, value.empty() ? "-" : value));
  }
  for (const auto& [wrapper, entries] : by_wrapper) {
    const std::string which =
        by_wrapper.size() == 1 ? "" : fmt::format(" (wrapper {})", wrapper + 1);
    out << '\n' << bold(options, caption + which) << '\n';
    print_columns(out, entries);
  }
}

}  // namespace ddp_doctor::text
