// SPDX-License-Identifier: BSD-3-Clause
// The steps table of several reports.

#include <algorithm>
#include <map>
#include <set>

#include "lib/report/merge/merge.h"
#include "lib/report/value/cells.h"

namespace ddp_doctor {
namespace {

const StepRow* row_of(const RunReport& run, std::int64_t step) {
  const auto found =
      std::lower_bound(run.steps_table.begin(), run.steps_table.end(), step,
                       [](const StepRow& row, std::int64_t wanted) { return row.step < wanted; });
  return found == run.steps_table.end() || found->step != step ? nullptr : &*found;
}

// `row`: null if the run does not have that step.
void add(ManyRanks& many, const RunReport& run, const StepRow* row) {
  if (row == nullptr) {
    many.unused[{}].add(run.ranks);
    return;
  }
  if (row->many) {
    cells::add(many.gradient_norm, row->many->gradient_norm);
    cells::add(many.loss, row->many->loss);
    for (const auto& [indices, ranks] : row->many->unused) many.unused[indices].add(ranks);
    return;
  }
  cells::add(many.gradient_norm, cells::range_of(row->gradient_norm));
  cells::add(many.loss, cells::range_of(row->loss));
  std::map<std::vector<int>, std::vector<int>> unused;
  for (std::size_t i = 0; i < row->unused.size(); ++i)
    unused[row->unused[i]].push_back(run.ranks.at(i));
  for (const auto& [indices, ranks] : unused) many.unused[indices].add(RankSet(ranks));
}

// In the order of all ranks.
template <class Value>
std::vector<Value> joined(const std::vector<const RunReport*>& runs, std::int64_t step,
                          std::vector<Value> StepRow::*figures) {
  std::map<int, Value> by_rank;
  for (const auto* run : runs) {
    const auto* row = row_of(*run, step);
    const auto ranks = run->ranks.list();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const bool known = row != nullptr && i < (row->*figures).size();
      by_rank[ranks[i]] = known ? (row->*figures)[i] : Value{};
    }
  }
  std::vector<Value> values;
  for (auto& [rank, value] : by_rank) values.push_back(std::move(value));
  return values;
}

StepRow merge_row(const std::vector<const RunReport*>& runs, const RunReport& merged,
                  std::int64_t step) {
  StepRow row;
  row.step = step;
  row.synced = true;
  row.drift = 0.0;
  for (const auto* run : runs) {
    const auto* here = row_of(*run, step);
    const auto synced = here == nullptr ? std::nullopt : here->synced;
    // One "no" is enough; a "yes" needs all of them.
    if (row.synced.value_or(true)) row.synced = synced ? synced : std::nullopt;
    if (synced && !*synced) row.synced = false;
    if (here == nullptr) {
      row.drift.reset();
      continue;
    }
    row.weights_differ = row.weights_differ || here->weights_differ;
    row.drift =
        row.drift && here->drift ? std::optional(std::max(*row.drift, *here->drift)) : std::nullopt;
    if (here->milliseconds)
      row.milliseconds = std::max(row.milliseconds.value_or(0.0), *here->milliseconds);
  }
  const auto roots = std::find_if(merged.roots.begin(), merged.roots.end(),
                                  [&](const StepRoots& roots) { return roots.step == step; });
  if (roots != merged.roots.end()) {
    if (some_differ(roots->gradient)) {
      row.synced = false;
    } else if (!all_equal(roots->gradient) && row.synced.value_or(false)) {
      row.synced.reset();
    }
    row.weights_differ = row.weights_differ || some_differ(roots->weight);
    // The size of the difference is unknown without the values.
    if (!all_equal(roots->weight)) row.drift.reset();
  }
  if (merged.ranks.size() > kMaxRanksOneByOne) {
    row.many.emplace();
    for (const auto* run : runs) add(*row.many, *run, row_of(*run, step));
    return row;
  }
  row.gradient_norm = joined(runs, step, &StepRow::gradient_norm);
  row.loss = joined(runs, step, &StepRow::loss);
  row.unused = joined(runs, step, &StepRow::unused);
  return row;
}

}  // namespace

std::vector<StepRow> merge_steps(const std::vector<const RunReport*>& runs,
                                 const RunReport& merged) {
  std::set<std::int64_t> steps;
  for (const auto* run : runs) {
    for (const auto& row : run->steps_table) steps.insert(row.step);
  }
  std::vector<StepRow> rows;
  for (const auto step : steps) rows.push_back(merge_row(runs, merged, step));
  return rows;
}

}  // namespace ddp_doctor
