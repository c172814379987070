// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/fold.h"

#include <fmt/format.h>

#include <cmath>

namespace ddp_doctor {
namespace {

enum class Known { kNo, kFinite, kNonfinite };

Known known(const std::optional<double>& value) {
  return !value ? Known::kNo : std::isfinite(*value) ? Known::kFinite : Known::kNonfinite;
}

bool same_kind(const ByRank& a, const ByRank& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (known(a[i]) != known(b[i])) return false;
  }
  return true;
}

bool same_kind(const Range& a, const Range& b) {
  return a.finite == b.finite && a.nonfinite == b.nonfinite;
}

bool same(const StepRow& a, const StepRow& b, bool exact_drift) {
  if (a.synced != b.synced || a.weights_differ != b.weights_differ || a.unused != b.unused)
    return false;
  if (a.drift.has_value() != b.drift.has_value()) return false;
  if (a.drift && (exact_drift ? *a.drift != *b.drift : (*a.drift == 0.0) != (*b.drift == 0.0)))
    return false;
  if (a.many.has_value() != b.many.has_value()) return false;
  if (a.many)
    return a.many->unused == b.many->unused &&
           same_kind(a.many->gradient_norm, b.many->gradient_norm) &&
           same_kind(a.many->loss, b.many->loss);
  return same_kind(a.gradient_norm, b.gradient_norm) && same_kind(a.loss, b.loss);
}

std::vector<Fold> folds_of(const std::vector<StepRow>& rows, bool exact_drift) {
  constexpr std::size_t kMinSize = 3;  // two rows stay two
  std::vector<Fold> folds;
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t last = first;
    while (first > 0 && last + 1 < rows.size() && same(rows[first], rows[last + 1], exact_drift))
      ++last;
    if (last - first + 1 >= kMinSize) {
      folds.push_back({first, last});
    } else {
      for (std::size_t row = first; row <= last; ++row) folds.push_back({row, row});
    }
    first = last + 1;
  }
  return folds;
}

}  // namespace

std::vector<Fold> fold_steps(const RunReport& run, std::size_t max_rows) {
  auto folds = folds_of(run.steps_table, true);
  if (folds.size() > max_rows) folds = folds_of(run.steps_table, false);
  if (folds.size() <= max_rows) return folds;
  const auto head = static_cast<std::ptrdiff_t>(max_rows / 2);
  const auto tail = static_cast<std::ptrdiff_t>(max_rows) - head - 1;
  const Fold middle{folds[static_cast<std::size_t>(head)].first, (folds.end() - tail - 1)->last,
                    true};
  folds.erase(folds.begin() + head, folds.end() - tail);
  folds.insert(folds.begin() + head, middle);
  return folds;
}

std::string label_of(const Fold& fold, const RunReport& run) {
  const auto first = run.steps_table[fold.first].step;
  const auto last = run.steps_table[fold.last].step;
  if (first == last) return std::to_string(first);
  const std::string range = fmt::format("{}..{}", first, last);
  const bool all = static_cast<std::size_t>(last - first) + 1 == fold.size();
  return all ? range : fmt::format("{} of {}", fold.size(), range);
}

}  // namespace ddp_doctor
