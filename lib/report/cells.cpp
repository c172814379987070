// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/cells.h"

#include <fmt/format.h>

#include <algorithm>

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
  return value ? fmt::format("{:.5f}", *value) : "-";
}

std::string drift(const StepRow& row) {
  if (row.drift && *row.drift != 0.0) return fmt::format("{:.3e}", *row.drift);
  if (row.drift) return row.weights_differ ? "0 (bits differ)" : "0";
  if (!row.synced) return "-";
  return row.weights_differ ? "> 0" : "0";
}

std::string synced(const StepRow& row) { return !row.synced ? "-" : *row.synced ? "yes" : "no"; }

namespace {

std::string in_range(double low, double high, std::size_t ranks) {
  return low == high ? fmt::format("{:.5f} x {}", low, ranks)
                     : fmt::format("{:.5f} .. {:.5f}", low, high);
}

std::string by_rank(const ByRank& values) {
  std::vector<double> known;
  std::string text;
  for (const auto& value : values) {
    if (value) known.push_back(*value);
    text += (text.empty() ? "[" : ", ") + figure(value);
  }
  if (values.size() <= 4 || known.empty()) return text + "]";
  const auto [low, high] = std::minmax_element(known.begin(), known.end());
  return in_range(*low, *high, known.size());
}

std::string of_many(const Range& range) {
  const std::string bad =
      range.nonfinite == 0 ? "" : fmt::format("not finite on {}", range.nonfinite);
  if (range.finite == 0) return bad.empty() ? "-" : bad;
  return in_range(range.low, range.high, range.finite) + (bad.empty() ? "" : ", " + bad);
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
