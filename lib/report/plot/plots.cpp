// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/plot/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/report/value/cells.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxRuns = plot::LineChart::kMaxLines;

class PlotCollector {
 public:
  explicit PlotCollector(const Report& report) : report_(report) {}

  std::vector<Plot> collect() {
    const std::size_t runs = std::min(report_.runs.size(), kMaxRuns);
    for (std::size_t i = 0; i < runs; ++i) gradients(report_.runs[i]);
    drift();
    step_times();
    for (const auto& [run, findings] : judged_runs(report_)) {
      usage(run);
      phases(run);
    }
    return std::move(plots_);
  }

 private:
  std::string of_run(const RunReport& run) const {
    return report_.runs.size() == 1 ? "" : ": " + run.label;
  }

  void note_on_other_runs(std::vector<std::string>& notes) const {
    if (report_.runs.size() > kMaxRuns)
      notes.push_back(fmt::format("The tables have {} more runs.", report_.runs.size() - kMaxRuns));
  }

  plot::Caption named(const std::string& title, const std::string& description) const {
    return {fmt::format("plot{}", plots_.size() + 1), title, description};
  }

  // An empty drawing is omitted.
  template <class Chart>
  void add(const std::string& caption, const Chart& chart, bool empty,
           const std::string& description, std::vector<std::string> notes, bool wide = false) {
    Plot plot{caption, {}, std::move(notes), wide};
    if (!empty) plot.drawing = draw(chart, named(caption, description));
    plots_.push_back(std::move(plot));
  }

  void gradients(const RunReport& run) {
    std::vector<std::string> notes;
    const auto chart = gradient_chart(run, notes);
    const bool empty = chart.lines.empty() && !chart.band;
    std::size_t known = 0;
    std::size_t synced = 0;
    for (const auto& row : run.steps_table) {
      known += row.synced.has_value();
      synced += row.synced.value_or(false);
    }
    std::string equal;
    if (known > 0)
      equal = fmt::format("Gradients were equal on all ranks, bit for bit, in {} of {} steps.",
                          synced, known);
    if (!equal.empty()) notes.insert(notes.begin(), equal);
    if (empty) notes.insert(notes.begin(), "No rank had a gradient at an optimizer.step().");
    add("Gradient norm per rank" + of_run(run), chart, empty,
        "L2 norm of all gradients at optimizer.step() by step, a line for each rank or group of "
        "equal ranks. " +
            equal + " The table of gradient norms has the figures.",
        notes);
  }

  void drift() {
    const auto steps = cells::step_numbers(report_);
    std::vector<plot::Values> all;
    plot::LineChart chart;
    chart.y_label = "max |W_i - W_j| after the step";
    chart.logarithmic = true;
    chart.above = "> 0, not measured";
    bool any = false;
    bool none_drifts = true;
    for (std::size_t i = 0; i < std::min(report_.runs.size(), kMaxRuns); ++i) {
      const auto& run = report_.runs[i];
      chart.lines.push_back({run.label, {}});
      auto& values = all.emplace_back();
      auto row = run.steps_table.begin();
      for (const auto step : steps) {
        while (row != run.steps_table.end() && row->step < step) ++row;
        const bool there = row != run.steps_table.end() && row->step == step;
        values.push_back(there ? drift_of(*row) : std::nullopt);
        any = any || values.back();
        none_drifts = none_drifts && values.back().value_or(0.0) == 0.0;
      }
    }
    auto fewer = thinned(steps, all);
    chart.x = std::move(fewer.x);
    for (std::size_t i = 0; i < chart.lines.size(); ++i) chart.lines[i].y = std::move(fewer.y[i]);
    std::vector<std::string> notes;
    if (!any)
      notes.emplace_back("There is no step after which the weights of all ranks are known.");
    if (any && none_drifts)
      notes.emplace_back("Zero throughout: the weights of all ranks stayed equal.");
    note_on_points(fewer.steps, notes);
    note_on_other_runs(notes);
    add("Weight drift per step", chart, !any,
        "Largest difference between the weights of any two ranks after each step, on a "
        "logarithmic scale, zero below it. The table of weight drift has the figures.",
        notes);
  }

  static std::optional<double> drift_of(const StepRow& row) {
    if (row.drift || !row.synced) return row.drift;
    return row.weights_differ ? HUGE_VAL : 0.0;
  }

  void step_times() {
    plot::Bars bars;
    bars.x_label = "milliseconds per step";
    std::vector<std::string> notes;
    for (const auto& run : report_.runs) {
      if (!run.step_time) {
        notes.push_back(fmt::format("{} is missing: it has no step after the second.", run.label));
        continue;
      }
      const auto& time = *run.step_time;
      bars.rows.push_back(
          {run.label, time.median_ms, time.low_ms, time.high_ms,
           fmt::format("{:.2f} ({:.2f} .. {:.2f})", time.median_ms, time.low_ms, time.high_ms)});
    }
    if (!bars.rows.empty())
      notes.emplace(notes.begin(),
                    "Median and range of the slowest rank's steps, without the first two steps and "
                    "the examination.");
    add(report_.runs.size() == 1 ? "Step time" : "Step time per strategy", bars, bars.rows.empty(),
        "Median and range of the time of a step for each run. The table of outcomes has the "
        "medians.",
        notes);
  }

  void usage(const RunReport& run) {
    std::vector<std::string> notes;
    const auto map = usage_map(run, notes);
    add("Parameters used, by rank and step" + of_run(run), map, map.rows.empty(),
        "For each parameter and step, whether the ranks used it. The table of unused parameters "
        "has names, ranks and steps.",
        notes, true);
  }

  void phases(const RunReport& run) {
    std::vector<std::string> notes;
    const auto lanes = phase_lanes(run, notes);
    std::string ends;
    for (const auto& lane : lanes.lanes) {
      if (!lane.remark.empty()) ends += fmt::format(" {} {}.", lane.label, lane.remark);
    }
    add("What each rank did when" + of_run(run), lanes, lanes.lanes.empty(),
        "A lane for each rank: its steps, forwards, backwards, collectives and examination over "
        "time." +
            ends,
        notes, true);
  }

  const Report& report_;
  std::vector<Plot> plots_;
};

}  // namespace

std::vector<Plot> plots_of(const Report& report) { return PlotCollector(report).collect(); }

}  // namespace ddp_doctor
