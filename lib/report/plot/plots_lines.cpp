// SPDX-License-Identifier: BSD-3-Clause
// Gradient norms as lines, and fewer points of long lines.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/diagnose/facts.h"
#include "lib/report/plot/plots.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxPoints = 320;

// Ranks whose values are the same in all steps.
struct Course {
  std::vector<int> ranks;
  plot::Values values;
};

bool same_value(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || *a == *b || (std::isnan(*a) && std::isnan(*b)));
}

std::vector<Course> courses_of(const RunReport& run, const ByRank StepRow::*figures) {
  std::size_t ranks = 0;
  for (const auto& row : run.steps_table) ranks = std::max(ranks, (row.*figures).size());
  std::vector<Course> courses;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto at = [&](const StepRow& row) {
      return rank < (row.*figures).size() ? (row.*figures)[rank] : std::nullopt;
    };
    const auto known = std::find_if(courses.begin(), courses.end(), [&](const Course& course) {
      for (std::size_t i = 0; i < run.steps_table.size(); ++i) {
        if (!same_value(course.values[i], at(run.steps_table[i]))) return false;
      }
      return true;
    });
    if (known != courses.end()) {
      known->ranks.push_back(run.rank_at(rank));
      continue;
    }
    auto& course = courses.emplace_back();
    course.ranks = {run.rank_at(rank)};
    for (const auto& row : run.steps_table) course.values.push_back(at(row));
  }
  std::erase_if(courses, [](const Course& course) {
    return std::none_of(course.values.begin(), course.values.end(),
                        [](const auto& value) { return value.has_value(); });
  });
  return courses;
}

std::string label_of(const Course& course) {
  const auto text = ranks_of(course.ranks);
  return course.ranks.size() == 1 ? text : text + ", equal";
}

double median_of_sorted(const std::vector<double>& values) {
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

void note_on_points(std::size_t steps, std::vector<std::string>& notes) {
  if (steps > 1)
    notes.push_back(
        fmt::format("Each point shows the minimum or maximum of {} examined steps.", steps));
}

ThinnedLines thinned(const std::vector<std::int64_t>& x, const std::vector<plot::Values>& y) {
  if (x.size() <= kMaxPoints) return {x, y, 1};
  ThinnedLines out;
  out.steps = (2 * x.size() + kMaxPoints - 1) / kMaxPoints;
  out.y.resize(y.size());
  for (std::size_t begin = 0; begin < x.size(); begin += out.steps) {
    const std::size_t end = std::min(begin + out.steps, x.size());
    out.x.push_back(x[begin]);
    if (end - begin > 1) out.x.push_back(x[end - 1]);
    for (std::size_t line = 0; line < y.size(); ++line) {
      std::optional<std::size_t> least;
      std::optional<std::size_t> greatest;
      std::optional<double> bad;
      for (std::size_t i = begin; i < end; ++i) {
        const auto& value = y[line][i];
        if (!value) continue;
        if (!std::isfinite(*value)) {
          bad = value;
          continue;
        }
        if (!least || *value < *y[line][*least]) least = i;
        if (!greatest || *value > *y[line][*greatest]) greatest = i;
      }
      const auto at = [&](const std::optional<std::size_t>& i) {
        return i ? y[line][*i] : std::nullopt;
      };
      const bool falls = least && greatest && *greatest < *least;
      out.y[line].push_back(at(falls ? greatest : least));
      // A value that is not finite must not be lost.
      if (end - begin > 1)
        out.y[line].push_back(bad ? bad : at(falls ? least : greatest));
      else if (bad)
        out.y[line].back() = bad;
    }
  }
  return out;
}

plot::LineChart gradient_chart(const RunReport& run, std::vector<std::string>& notes) {
  plot::LineChart chart;
  chart.y_label = "L2 norm at optimizer.step()";
  std::vector<std::int64_t> steps;
  for (const auto& row : run.steps_table) steps.push_back(row.step);
  std::vector<plot::Values> values;  // of the lines; then, where there is a band, low and high
  auto courses = courses_of(run, &StepRow::gradient_norm);
  const bool merged = std::any_of(run.steps_table.begin(), run.steps_table.end(),
                                  [](const StepRow& row) { return row.many.has_value(); });
  if (courses.size() <= plot::LineChart::kMaxLines && !merged) {
    for (auto& course : courses) {
      chart.lines.push_back({label_of(course), {}});
      values.push_back(std::move(course.values));
    }
  } else {
    // Too many lines to tell apart.
    plot::Values low(steps.size());
    plot::Values middle(steps.size());
    plot::Values high(steps.size());
    std::size_t ranks = run.ranks.size();
    for (std::size_t i = 0; i < run.steps_table.size(); ++i) {
      const auto& row = run.steps_table[i];
      if (row.many) {
        const auto& range = row.many->gradient_norm;
        if (range.finite > 0) {
          low[i] = range.low;
          high[i] = range.high;
        }
        if (range.nonfinite > 0) middle[i] = HUGE_VAL;
        continue;
      }
      std::vector<double> finite;
      bool bad = false;
      for (const auto& value : row.gradient_norm) {
        if (value && std::isfinite(*value)) finite.push_back(*value);
        bad = bad || (value && !std::isfinite(*value));
      }
      std::sort(finite.begin(), finite.end());
      if (!finite.empty()) {
        low[i] = finite.front();
        high[i] = finite.back();
        middle[i] = median_of_sorted(finite);
      }
      if (bad) middle[i] = HUGE_VAL;
    }
    const bool one_by_one = !courses.empty();
    const std::string all = one_by_one ? fmt::format("{} ranks", ranks) : run.ranks.text();
    chart.lines.push_back({one_by_one ? "median of the ranks" : "minimum of the ranks", {}});
    values.push_back(one_by_one ? middle : low);
    if (!one_by_one) {
      for (std::size_t i = 0; i < low.size(); ++i) {
        if (middle[i]) values[0][i] = middle[i];  // not finite on some
      }
    }
    // Ranks that a finding names may be why there is a band at all.
    for (const auto& finding : run.diagnosis.findings) {
      if (finding.ranks.size() > 3) continue;
      for (auto& course : courses) {
        const bool meant = course.ranks.size() <= 3 && !course.values.empty() &&
                           std::find(finding.ranks.begin(), finding.ranks.end(),
                                     course.ranks.front()) != finding.ranks.end();
        if (!meant || chart.lines.size() == 4) continue;
        chart.lines.push_back({label_of(course), {}});
        values.push_back(std::exchange(course.values, {}));
      }
    }
    chart.band = plot::LineChart::Band{"range of " + (one_by_one ? all : "ranks " + all), {}, {}};
    values.push_back(low);
    values.push_back(high);
    notes.push_back(
        one_by_one ? fmt::format("{} ranks have {} different curves; instead of {} lines, "
                                 "this shows their range, their median and ranks that findings "
                                 "name.",
                                 ranks, courses.size(), courses.size())
                   : "A merged report of many ranks has their range only.");
  }
  auto fewer = thinned(steps, values);
  chart.x = std::move(fewer.x);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) chart.lines[i].y = std::move(fewer.y[i]);
  if (chart.band) {
    chart.band->high = std::move(fewer.y.back());
    fewer.y.pop_back();
    chart.band->low = std::move(fewer.y.back());
  }
  double least = HUGE_VAL;
  double greatest = 0.0;
  for (const auto& line : values) {
    for (const auto& value : line) {
      if (!value || !std::isfinite(*value) || *value <= 0.0) continue;
      least = std::min(least, *value);
      greatest = std::max(greatest, *value);
    }
  }
  chart.logarithmic = greatest / 1000 > least;
  if (chart.logarithmic) chart.y_label += ", logarithmic";
  note_on_points(fewer.steps, notes);
  return chart;
}

}  // namespace ddp_doctor
