// SPDX-License-Identifier: BSD-3-Clause
// Which parameters were used by which rank at which step.
//
// Cells are shares: of ranks, of the steps that a column stands for, and of the parameters that a
// row stands for. A rank without a known gradient or unused parameter was not examined in that
// step.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/report/plot/plots.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxMapRows = 48;
constexpr std::size_t kMaxMapColumns = 150;
constexpr std::size_t kAllOneByOne = 20;  // parameters, even if all were used
constexpr std::size_t kMaxRanksApart = 4;

// Of some ranks, in some steps.
struct Uses {
  double used = 0.0;
  double seen = 0.0;

  void add(const Uses& other) {
    used += other.used;
    seen += other.seen;
  }
  std::optional<double> share() const {
    return seen == 0.0 ? std::nullopt : std::optional(used / seen);
  }
};

class UsageReader {
 public:
  UsageReader(const RunReport& run, std::vector<std::string>& notes) : run_(run), notes_(notes) {
    for (std::size_t i = 0; i < run_.tensors.size(); ++i) {
      const auto& tensor = run_.tensors[i];
      if (tensor.kind != "parameter" || !tensor.trainable) continue;
      position_[tensor.ddp_index.value_or(static_cast<int>(i))] = parameters_.size();
      parameters_.push_back(&tensor);
    }
    steps_per_column_ = (run_.steps_table.size() + kMaxMapColumns - 1) / kMaxMapColumns;
  }

  plot::HeatMap read() {
    if (parameters_.empty() || run_.steps_table.empty()) {
      notes_.emplace_back("No step shows which parameters were used.");
      return {};
    }
    collect();
    std::vector<std::size_t> alone;   // a row of their own
    std::vector<std::size_t> others;  // used by all, always
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const bool always = std::all_of(all_[p].begin(), all_[p].end(),
                                      [](const Uses& uses) { return uses.used == uses.seen; });
      (always && parameters_.size() > kAllOneByOne ? others : alone).push_back(p);
    }
    std::vector<std::size_t> rest;
    if (alone.size() > kMaxMapRows) {
      rest.assign(alone.begin() + kMaxMapRows, alone.end());
      alone.resize(kMaxMapRows);
    }
    for (const std::size_t p : alone) rows_of(p, alone.size());
    if (!rest.empty()) pooled(rest, fmt::format("{} more", count_of(rest.size(), "parameter")));
    if (!others.empty())
      pooled(others, fmt::format("{} always used", count_of(others.size(), "parameter")));
    if (steps_per_column_ > 1)
      notes_.push_back(fmt::format("Each column stands for {} examined steps.", steps_per_column_));
    const bool part = std::any_of(map_.rows.begin(), map_.rows.end(), [](const auto& row) {
      return std::any_of(row.shares.begin(), row.shares.end(),
                         [](const auto& share) { return share && *share > 0.0 && *share < 1.0; });
    });
    if (part)
      notes_.emplace_back("The height of a filled cell is the share that used the parameter.");
    map_.full = "used";
    map_.part = "used in part";
    map_.none = "unused";
    return std::move(map_);
  }

 private:
  void collect() {
    const std::size_t columns =
        (run_.steps_table.size() + steps_per_column_ - 1) / steps_per_column_;
    all_.assign(parameters_.size(), std::vector<Uses>(columns));
    map_.first.resize(columns);
    map_.last.resize(columns);
    const std::size_t ranks = run_.steps_table.front().unused.size();
    if (ranks <= kMaxRanksApart)
      apart_.assign(ranks,
                    std::vector<std::vector<Uses>>(parameters_.size(), std::vector<Uses>(columns)));
    for (std::size_t i = 0; i < run_.steps_table.size(); ++i) {
      const auto& row = run_.steps_table[i];
      const std::size_t column = i / steps_per_column_;
      if (i % steps_per_column_ == 0) map_.first[column] = row.step;
      map_.last[column] = row.step;
      if (row.many) {
        const double seen =
            static_cast<double>(row.many->gradient_norm.finite + row.many->gradient_norm.nonfinite);
        if (seen > 0.0) add_all(column, seen);
        for (const auto& [indices, of] : row.many->unused)
          take(column, indices, static_cast<double>(of.size()));
        continue;
      }
      // Most ranks leave the same ones unused.
      std::map<std::vector<int>, double> groups;
      for (std::size_t rank = 0; rank < row.unused.size(); ++rank) {
        const auto& unused = row.unused[rank];
        const bool known =
            !unused.empty() || (rank < row.gradient_norm.size() && row.gradient_norm[rank]);
        if (!known) continue;
        groups[unused] += 1.0;
        if (rank >= apart_.size()) continue;
        for (auto& of_parameter : apart_[rank]) of_parameter[column].add({1.0, 1.0});
        for (const int index : unused) {
          const auto found = position_.find(index);
          if (found != position_.end()) apart_[rank][found->second][column].used -= 1.0;
        }
      }
      for (const auto& [indices, count] : groups) {
        add_all(column, count);
        take(column, indices, count);
      }
    }
  }

  void add_all(std::size_t column, double count) {
    for (auto& of_parameter : all_) of_parameter[column].add({count, count});
  }
  void take(std::size_t column, const std::vector<int>& indices, double count) {
    for (const int index : indices) {
      const auto found = position_.find(index);
      if (found == position_.end()) continue;
      auto& uses = all_[found->second][column];
      uses.used = std::max(0.0, uses.used - count);
    }
  }

  static plot::Values shares_of(const std::vector<Uses>& uses) {
    plot::Values shares;
    for (const auto& one : uses) shares.push_back(one.share());
    return shares;
  }

  std::string name_of(std::size_t p) const {
    const auto& tensor = *parameters_[p];
    return tensor.ddp_index ? fmt::format("{} ({})", tensor.name, *tensor.ddp_index) : tensor.name;
  }

  // One row if the ranks agree; otherwise one for each rank, if there is room.
  void rows_of(std::size_t p, std::size_t parameters) {
    const bool agree = std::all_of(apart_.begin(), apart_.end(), [&](const auto& of_rank) {
      return shares_of(of_rank[p]) == shares_of(apart_.front()[p]);
    });
    if (agree || apart_.empty() || parameters * apart_.size() > kMaxMapRows) {
      map_.rows.push_back(
          {name_of(p), agree && !apart_.empty() ? "all ranks" : "", shares_of(all_[p])});
      return;
    }
    for (std::size_t rank = 0; rank < apart_.size(); ++rank)
      map_.rows.push_back({rank == 0 ? name_of(p) : "", fmt::format("rank {}", run_.rank_at(rank)),
                           shares_of(apart_[rank][p])});
  }

  void pooled(const std::vector<std::size_t>& parameters, const std::string& label) {
    std::vector<Uses> sums(map_.first.size());
    for (const std::size_t p : parameters) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add(all_[p][i]);
    }
    map_.rows.push_back({label, "", shares_of(sums)});
  }

  const RunReport& run_;
  std::vector<std::string>& notes_;
  std::vector<const TensorInfo*> parameters_;
  std::map<int, std::size_t> position_;  // by the index that StepRow::unused has
  std::size_t steps_per_column_ = 1;
  std::vector<std::vector<Uses>> all_;                 // by parameter and column
  std::vector<std::vector<std::vector<Uses>>> apart_;  // by rank, likewise; empty: too many ranks
  plot::HeatMap map_;
};

}  // namespace

Figures unused_parameters(const RunReport& run) {
  constexpr std::size_t kMaxNamed = 200;
  struct Left {
    RankSet ranks;
    std::size_t steps = 0;
    std::int64_t first = 0;
    std::int64_t last = 0;
  };
  std::map<int, Left> left;
  for (const auto& row : run.steps_table) {
    std::map<int, std::vector<int>> here;  // ranks by index
    for (std::size_t i = 0; i < row.unused.size(); ++i) {
      for (const int index : row.unused[i]) here[index].push_back(run.rank_at(i));
    }
    if (row.many) {
      for (const auto& [indices, ranks] : row.many->unused) {
        for (const int index : indices) {
          const auto list = ranks.list();
          here[index].insert(here[index].end(), list.begin(), list.end());
        }
      }
    }
    for (const auto& [index, ranks] : here) {
      auto& one = left[index];
      if (one.steps++ == 0) one.first = row.step;
      one.last = row.step;
      if (const RankSet set(ranks); set != one.ranks) one.ranks.add(set);
    }
  }
  Figures figures{"Parameters that a rank did not use in some step",
                  {"parameter", "index", "by ranks", "in steps", "first", "last"},
                  {}};
  for (std::size_t i = 0; i < run.tensors.size(); ++i) {
    const auto& tensor = run.tensors[i];
    const int index = tensor.ddp_index.value_or(static_cast<int>(i));
    const auto found = left.find(index);
    if (found == left.end() || tensor.kind != "parameter" || !tensor.trainable) continue;
    const auto& [ranks, steps, first, last] = found->second;
    figures.rows.push_back({tensor.name, std::to_string(index), ranks.text(),
                            fmt::format("{} of {}", steps, run.steps_table.size()),
                            std::to_string(first), std::to_string(last)});
    if (figures.rows.size() == kMaxNamed && left.size() > kMaxNamed) {
      figures.caption += fmt::format(" (the first {} of {})", kMaxNamed, left.size());
      break;
    }
  }
  return figures;
}

plot::HeatMap usage_map(const RunReport& run, std::vector<std::string>& notes) {
  return UsageReader(run, notes).read();
}

}  // namespace ddp_doctor
