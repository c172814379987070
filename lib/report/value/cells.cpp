// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ddp_doctor::cells {
namespace {

std::string indices(const std::vector<int>& list) {
  std::string text;
  std::size_t shown = 0;
  for (int index : list) {
    if (++shown > 8) return text + fmt::format(" +{}", list.size() - 8);
    text += (text.empty() ? "" : " ") + std::to_string(index);
  }
  return text.empty() ? "-" : text;
}

}  // namespace

std::vector<std::int64_t> step_numbers(const Report& report) {
  std::vector<std::int64_t> numbers;
  for (const auto& run : report.runs) {
    for (const auto& row : run.steps_table) numbers.push_back(row.step);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

const StepRow* row_at(const RunReport& run, std::int64_t step) {
  for (const auto& row : run.steps_table) {
    if (row.step == step) return &row;
  }
  return nullptr;
}

std::string figure(const std::optional<double>& value) {
  if (!value) return "-";
  const double size = std::abs(*value);
  const bool plain = size == 0.0 || !(size < 1e-3 || size >= 1e5) || !std::isfinite(size);
  return plain ? fmt::format("{:.5f}", *value) : fmt::format("{:.3e}", *value);
}

std::string milliseconds(double ms, int digits) {
  return ms >= std::pow(10.0, digits - 1) ? fmt::format("{:.0f}", ms)
                                          : fmt::format("{:.{}g}", ms, digits);
}

std::string milliseconds(double ms, const StepTime& time) {
  constexpr int kMaxDigits = 3;
  const double spread = time.high_ms - time.low_ms;
  if (spread <= 0.0 || ms <= 0.0) return milliseconds(ms, kMaxDigits);
  const double digits = std::floor(std::log10(ms)) - std::floor(std::log10(spread)) + 1;
  return milliseconds(ms, static_cast<int>(std::clamp(digits, 1.0, double{kMaxDigits})));
}

std::string drift(const StepRow& row) {
  if (row.drift && *row.drift != 0.0) return fmt::format("{:.3e}", *row.drift);
  if (row.drift) return row.weights_differ ? "0 (bits differ)" : "0";
  if (!row.synced) return "-";
  return row.weights_differ ? "> 0" : "0";
}

std::string drift_along(const StepRow& row, std::size_t dimension) {
  const bool known = dimension < row.drift_along.size() && row.drift_along[dimension];
  if (!known) return row.weights_differ ? "> 0" : "-";
  const double drift = *row.drift_along[dimension];
  return drift == 0.0 ? "0" : fmt::format("{:.3e}", drift);
}

std::string synced(const StepRow& row) { return !row.synced ? "-" : *row.synced ? "yes" : "no"; }

Range range_of(const ByRank& values) {
  Range range;
  for (const auto& value : values) {
    if (!value) continue;
    add(range, std::isfinite(*value) ? Range{*value, *value, 1, 0} : Range{0.0, 0.0, 0, 1});
  }
  return range;
}

void add(Range& range, const Range& other) {
  if (other.finite > 0) {
    range.low = range.finite == 0 ? other.low : std::min(range.low, other.low);
    range.high = range.finite == 0 ? other.high : std::max(range.high, other.high);
  }
  range.finite += other.finite;
  range.nonfinite += other.nonfinite;
}

std::string in_words(const Range& range) {
  if (range.finite + range.nonfinite == 0) return "-";
  if (range.finite == 0) return "not finite";
  return range.low == range.high ? figure(range.low)
                                 : fmt::format("{} .. {}", figure(range.low), figure(range.high));
}

namespace {

// Ranks without a figure, or with one that is not finite, are counted.
std::string of_ranks(const Range& range, std::size_t ranks) {
  std::string text = in_words(range);
  if (range.finite > 0 && range.finite < ranks) text += fmt::format(" on {}", range.finite);
  if (range.nonfinite > 0 && range.finite > 0) text += ", not finite";
  if (range.nonfinite > 0 && range.nonfinite < ranks)
    text += fmt::format(" on {}", range.nonfinite);
  return text;
}

std::string of_many(const Range& range) { return of_ranks(range, range.finite + range.nonfinite); }

std::string by_rank(const ByRank& values) {
  constexpr std::size_t kMaxListed = 4;
  const Range range = range_of(values);
  const bool equal = range.finite == values.size() && range.low == range.high;
  if (equal && range.finite > 0) return figure(range.low);
  if (values.size() > kMaxListed) return of_ranks(range, values.size());
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "[" : ", ") + figure(value);
  return range.finite + range.nonfinite == 0 ? "-" : text + "]";
}

}  // namespace

std::string gradient_norm(const StepRow& row) {
  return row.many ? of_many(row.many->gradient_norm) : by_rank(row.gradient_norm);
}

std::string loss(const StepRow& row) {
  return row.many ? of_many(row.many->loss) : by_rank(row.loss);
}

std::string cost(const RunReport& run) {
  if (!run.cost || run.cost->pairs < 2) return "-";
  return fmt::format("{:.2f} ({:.2f} .. {:.2f})", run.cost->ratio, run.cost->low, run.cost->high);
}

std::string unused(const RunReport& run, const StepRow& row) {
  if (row.many) {
    std::string text;
    for (const auto& [list, ranks] : row.many->unused)
      text += fmt::format("{}r{}: {}", text.empty() ? "" : "  ", ranks.text(), indices(list));
    return row.many->unused.size() == 1 ? indices(row.many->unused.begin()->first) : text;
  }
  if (row.unused.empty()) return "-";
  const bool same = std::all_of(row.unused.begin(), row.unused.end(),
                                [&](const auto& list) { return list == row.unused.front(); });
  if (same) return indices(row.unused.front());
  std::string text;
  for (std::size_t rank = 0; rank < row.unused.size(); ++rank) {
    if (rank == 4 && row.unused.size() > 5) return text + " ...";
    text += fmt::format("{}r{}: {}", rank == 0 ? "" : "  ", run.rank_at(rank),
                        indices(row.unused[rank]));
  }
  return text;
}

bool leaves_unused(const StepRow& row, int index) {
  const auto has = [&](const std::vector<int>& list) {
    return std::find(list.begin(), list.end(), index) != list.end();
  };
  if (row.many)
    return std::any_of(row.many->unused.begin(), row.many->unused.end(),
                       [&](const auto& entry) { return has(entry.first); });
  return std::any_of(row.unused.begin(), row.unused.end(), has);
}

}  // namespace ddp_doctor::cells
