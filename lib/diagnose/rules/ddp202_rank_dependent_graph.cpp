// SPDX-License-Identifier: BSD-3-Clause
// DDP202: in one step a parameter is used on some ranks and not on others.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/errors.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/record/progress.h"

namespace ddp_doctor {
namespace {

struct Dependence {
  std::optional<std::int64_t> first_step;
  std::size_t steps = 0;
  std::set<int> parameters;
  std::map<int, std::set<int>> unused_by_rank;  // in the first such step

  void seen(std::int64_t step, std::map<int, std::set<int>> unused) {
    ++steps;
    for (const auto& [rank, ids] : unused) parameters.insert(ids.begin(), ids.end());
    if (first_step) return;
    first_step = step;
    unused_by_rank = std::move(unused);
  }
};

// Steps that every rank completed, with gradients that differ. If they agree nevertheless
// (find_unused_parameters, a hand-written all-reduce that fills in zeros), the different graphs did
// no harm.
void compare_complete(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                      Dependence& dependence) {
  for (const auto* step : steps) {
    const auto everywhere = unused_on_every_rank(timeline, *step);
    std::map<int, std::set<int>> by_rank;
    bool any = false;
    for (int rank : all_ranks(timeline)) {
      auto ids = unused(timeline, *step, rank);
      std::erase_if(ids, [&](int id) { return everywhere.contains(id); });
      any = any || !ids.empty();
      by_rank[rank] = std::move(ids);
    }
    if (any && !differing(timeline, *step, Stage::kGradient).empty())
      dependence.seen(step->number, std::move(by_rank));
  }
}

// Whether `rank`, which ended without completing `step`, was waiting for the others' gradients.
bool waited_in(const Timeline& timeline, int rank, std::int64_t step) {
  const char* phase = name_of(timeline.has_wrapper() ? Phase::kBackward : Phase::kCollective);
  if (const Event* error = timeline.error(rank)) {
    const auto kind = error_kind(error->text);
    return error->step == step && error->phase == phase &&
           (kind == "peer-lost" || kind == "stuck-collective");
  }
  return std::any_of(
      timeline.run.exits.begin(), timeline.run.exits.end(), [&](const RankExit& exit) {
        return exit.rank == rank && exit.step == step && exit.phase == phase &&
               (exit.kind == RankExit::Kind::kStopped || exit.kind == RankExit::Kind::kTimedOut);
      });
}

// A step that some ranks completed with unused parameters, while all others waited in it: the
// waiting ranks had their gradients and were reducing them.
void compare_split(const Timeline& timeline, Dependence& dependence) {
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || step.complete()) continue;
    std::map<int, std::set<int>> by_rank;
    bool left_out = false;
    for (int rank : all_ranks(timeline)) {
      if (step.at(rank) != nullptr) {
        by_rank[rank] = unused(timeline, step, rank);
        left_out = left_out || !by_rank[rank].empty();
      } else if (waited_in(timeline, rank, step.number)) {
        by_rank[rank] = {};
      } else {
        return;
      }
    }
    if (left_out) dependence.seen(step.number, std::move(by_rank));
    return;
  }
}

Verdict check_rank_dependent_graph(const Timeline& timeline) {
  if (all_ranks(timeline).size() < 2)
    return Undecidable{"there is only one rank, nothing to compare"};
  const auto steps = complete_steps(timeline);
  Dependence dependence;
  compare_complete(timeline, steps, dependence);
  if (!wrapper_expects_unused(timeline)) compare_split(timeline, dependence);
  if (!dependence.first_step) {
    if (steps.empty()) return Undecidable{"no step was completed by every rank"};
    return std::vector<Finding>{};
  }

  Finding finding = finding_of(kRankDependentGraph);
  finding.where = where(timeline, "forward");
  finding.first_step = dependence.first_step;
  finding.parameters = parameters_of(timeline, dependence.parameters);
  finding.evidence["steps_dependent"] = dependence.steps;
  finding.evidence["steps_seen"] = steps.size();
  for (const auto& [rank, ids] : dependence.unused_by_rank) {
    if (!ids.empty()) finding.ranks.push_back(rank);
    auto& names = finding.evidence["unused_by_rank"][std::to_string(rank)];
    names = nlohmann::ordered_json::array();
    for (int id : ids) names.push_back(parameter_of(timeline, id).name);
  }
  finding.message = fmt::format(
      "{} got a gradient on some ranks but not on others in the same step (first in step {}, not "
      "on {}): the path through the model depends on the rank or on its data.",
      list_of(finding.parameters), *finding.first_step, ranks_of(finding.ranks));
  finding.prescription = {
      "Take the same path through the model on every rank, or wrap with "
      "find_unused_parameters=True: ranks without a gradient then contribute zeros to the mean.",
      "ddp-find-unused",
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kRankDependentGraph = {"DDP202",
                                  "rank-dependent-graph",
                                  Severity::kError,
                                  "a parameter is used on some ranks and not on others",
                                  check_rank_dependent_graph,
                                  Scope::kWrapper};

}  // namespace ddp_doctor
