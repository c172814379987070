// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/figures.h"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/report/value/cells.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxRows = 40;
constexpr std::size_t kMaxColumns = 4;  // ranks that have one of their own

using Row = std::vector<std::string>;

class Collector {
 public:
  explicit Collector(const Report& report) : report_(report) {}

  std::vector<Figures> collect() {
    for (const auto& run : report_.runs) {
      auto steps = parity_steps(run);
      if (report_.runs.size() > 1) steps.caption = run.label + ": " + steps.caption;
      table(steps.caption, steps.head, std::move(steps.rows));
    }
    for (const auto& run : report_.runs) {
      if (auto mesh = mesh_figures(run); !mesh.rows.empty()) {
        if (report_.runs.size() > 1) mesh.caption = run.label + ": " + mesh.caption;
        tables_.push_back(std::move(mesh));
      }
    }
    gradients();
    drift();
    losses();
    outcomes();
    return std::move(tables_);
  }

 private:
  void table(const std::string& caption, const Row& head, std::vector<Row> rows) {
    if (rows.empty()) return;
    Figures figures{caption, head, std::move(rows), 0, head.front() == "step"};
    if (auto& all = figures.rows; all.size() > kMaxRows) {
      figures.omitted = all.size() - kMaxRows;
      const auto half = all.begin() + kMaxRows / 2;
      all.erase(half, half + static_cast<std::ptrdiff_t>(figures.omitted));
    }
    tables_.push_back(std::move(figures));
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

  // One column per rank if there are few.
  void per_rank(Row& row, const StepRow* seen, const ByRank StepRow::*figures) const {
    if (ranks() > kMaxColumns) {
      const auto cell = figures == &StepRow::loss ? cells::loss : cells::gradient_norm;
      row.push_back(seen == nullptr ? "" : cell(*seen));
      return;
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const bool there = seen != nullptr && rank < (seen->*figures).size();
      row.push_back(there ? cells::figure((seen->*figures)[rank]) : "");
    }
  }
  void per_rank_head(Row& head, const std::string& label) const {
    if (ranks() > kMaxColumns) {
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
    for (const auto& run : report_.runs) {
      head.push_back(run.label);
      for (const auto i : run.mesh.replicated_along())
        head.push_back(fmt::format("{} along {}", run.label, name_of(run.mesh, i)));
    }
    table("Weight drift, max abs(W_i - W_j) over all replicas, after each step", head,
          by_step([](Row& row, const RunReport& run, const StepRow* seen) {
            row.push_back(seen == nullptr ? "" : cells::drift(*seen));
            for (const auto i : run.mesh.replicated_along())
              row.push_back(seen == nullptr ? "" : cells::drift_along(*seen, i));
          }));
  }

  void losses() {
    Row head = {"step"};
    for (const auto& run : report_.runs) {
      per_rank_head(head, run.label);
      head.emplace_back("unused");
      head.emplace_back("ms");
    }
    table("Loss per rank, indices of unused parameters, and step time", head,
          by_step([&](Row& row, const RunReport& run, const StepRow* seen) {
            per_rank(row, seen, &StepRow::loss);
            row.push_back(seen == nullptr ? "" : cells::unused(run, *seen));
            const bool timed = seen != nullptr && seen->milliseconds;
            row.push_back(timed ? cells::milliseconds(*seen->milliseconds) : "");
          }));
  }

  void outcomes() {
    std::vector<Row> rows;
    for (const auto& run : report_.runs) {
      rows.push_back(
          {run.label, std::to_string(run.steps_seen()),
           run.step_time ? cells::milliseconds(run.step_time->median_ms, *run.step_time) : "-",
           cells::cost(run), run.outcome});
    }
    table("Outcome", {"run", "steps", "ms per step", "relative", "outcome"}, rows);
  }

  const Report& report_;
  std::vector<Figures> tables_;
};

}  // namespace

Figures mesh_figures(const RunReport& run) {
  const MeshMap& map = run.mesh;
  Figures figures{map.dimensions.empty() ? "Parameters on the ranks" : "Mesh of ranks",
                  {"parameters", "such as"},
                  {}};
  for (std::size_t i = 0; i < map.dimensions.size(); ++i) {
    figures.caption += fmt::format("{} {} {}", i == 0 ? ":" : ";", name_of(map, i),
                                   some_groups(map.dimensions[i].groups));
    figures.head.push_back(name_of(map, i));
  }
  figures.head.emplace_back("source");
  figures.head.emplace_back("replicas on ranks");
  for (const auto& placed : map.placements) {
    Row row = {std::to_string(placed.parameters.size()), placed.parameters.front()};
    row.insert(row.end(), placed.along.begin(), placed.along.end());
    row.push_back(placed.source);
    row.push_back(some_groups(placed.replicas));
    figures.rows.push_back(std::move(row));
  }
  return figures;
}

Figures ddp_fields(const RunReport& run) {
  Figures figures{"DistributedDataParallel's fields",
                  {"field", "at construction", "at the last sampled iteration"},
                  {}};
  std::map<std::pair<int, std::string>, std::size_t> rows;  // by wrapper and field
  for (const auto& field : run.ddp) {
    const auto [row, added] = rows.try_emplace({field.wrapper, field.key}, figures.rows.size());
    const std::string which = field.wrapper == 0 ? "" : fmt::format(" ({})", field.wrapper + 1);
    if (added) figures.rows.push_back({field.key + which, "", ""});
    figures.rows[row->second][field.moment == "construction" ? 1 : 2] =
        field.value.empty() ? "-" : field.value;
  }
  return figures;
}

Figures parity_steps(const RunReport& run) {
  Figures figures{fmt::format("Gradients of {} against one process on the same samples",
                              count_of(static_cast<std::size_t>(run.info.world_size), "rank")),
                  {"step", "parameters", "equal", "difference", "rounding alone"},
                  {},
                  0,
                  true};
  if (!run.parity) return figures;
  for (const auto& step : run.parity->steps)
    figures.rows.push_back({std::to_string(step.step), std::to_string(step.parameters),
                            std::to_string(step.equal), fmt::format("{:.1e}", step.distance),
                            fmt::format("{:.1e}", step.rounding)});
  return figures;
}

std::vector<Figures> figures_of(const Report& report) { return Collector(report).collect(); }

}  // namespace ddp_doctor
