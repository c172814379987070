// SPDX-License-Identifier: BSD-3-Clause
// Consecutive steps of a run that say the same, as one row of a table.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// Rows `first` to `last` of RunReport::steps_table, both included.
struct Fold {
  std::size_t first = 0;
  std::size_t last = 0;
  bool omitted = false;  // too many changes to show: a table has only a note here

  std::size_t size() const { return last - first + 1; }
};

// At most `max_rows` (3 or more) folds of all rows, in order. The first step stands alone. Steps
// fold where all of them agree in: gradients equal or not, unused parameters, which ranks are not
// finite, and weight drift. Where that gives too many rows, drifts other than 0 fold to a range;
// where it still does, the middle is omitted.
std::vector<Fold> fold_steps(const RunReport& run, std::size_t max_rows);

// "7"; "2..8"; "20 of 2..200" where steps between were not examined.
std::string label_of(const Fold& fold, const RunReport& run);

}  // namespace ddp_doctor
