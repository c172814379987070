// SPDX-License-Identifier: BSD-3-Clause
// DDP202: in one step a parameter is used on some ranks and not on others.
//
// Where requires_grad is off on some ranks only, this is wrong even if the gradients agree: with
// find_unused_parameters=True these ranks silently contribute zeros to the mean.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"
#include "lib/record/progress.h"

namespace ddp_doctor {
namespace {

struct Dependence {
  std::optional<std::int64_t> first_step;
  std::size_t steps = 0;
  std::set<int> parameters;
  std::map<int, std::set<int>> unused_by_rank;  // in the first such step
  bool frozen = true;                           // all of these have requires_grad off there

  void seen(const TimelineStep& step, std::map<int, std::set<int>> unused) {
    ++steps;
    for (const auto& [rank, ids] : unused) {
      parameters.insert(ids.begin(), ids.end());
      for (int id : ids) {
        const auto usage = step.usage(rank, id);
        frozen = frozen && usage && usage->frozen;
      }
    }
    if (first_step) return;
    first_step = step.number;
    unused_by_rank = std::move(unused);
  }
};

// Of a wrapper, and requires_grad is off.
bool is_frozen(const Timeline& timeline, const TimelineStep& step, int rank, int id) {
  const auto usage = step.usage(rank, id);
  return usage && usage->frozen && timeline.tensors[static_cast<std::size_t>(id)].ddp_index;
}

// A backward brought it a gradient on some rank. Where the program assigns gradients, one of zeros
// looks like none.
bool used_on_some_rank(const Timeline& timeline, const TimelineStep& step, int id) {
  return std::ranges::any_of(timeline.ranks(), [&](int rank) {
    const auto usage = step.usage(rank, id);
    return usage && usage->used;
  });
}

// Steps that every rank completed, with gradients that differ. If they agree nevertheless
// (find_unused_parameters, a hand-written all-reduce that fills in zeros), the different graphs did
// no harm, except where a rank does not train what the others train.
void compare_complete(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                      Dependence& dependence) {
  for (const auto* step : steps) {
    const auto everywhere = unused_on_every_rank(timeline, *step);
    const bool apart = !differing(timeline, *step, Stage::kGradient).empty();
    std::map<int, std::set<int>> by_rank;
    bool any = false;
    for (int rank : timeline.ranks()) {
      auto ids = unused(timeline, *step, rank);
      std::erase_if(ids, [&](int id) {
        return everywhere.contains(id) || !used_on_some_rank(timeline, *step, id) ||
               (!apart && !is_frozen(timeline, *step, rank, id));
      });
      any = any || !ids.empty();
      by_rank[rank] = std::move(ids);
    }
    if (any) dependence.seen(*step, std::move(by_rank));
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
// waiting ranks had their gradients and were reducing them. Where the wrapper's options allow for
// unused parameters, only ranks that used none are left out: their reducer never began.
void compare_split(const Timeline& timeline, Dependence& dependence) {
  const bool expected = wrapper_expects_unused(timeline);
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || step.complete()) continue;
    std::map<int, std::set<int>> by_rank;
    bool left_out = false;
    for (int rank : timeline.ranks()) {
      if (step.at(rank) != nullptr) {
        by_rank[rank] = unused(timeline, step, rank);
        if (expected && by_rank[rank].size() < timeline.trainable().size()) by_rank[rank].clear();
        left_out = left_out || !by_rank[rank].empty();
      } else if (waited_in(timeline, rank, step.number)) {
        by_rank[rank] = {};
      } else {
        return;
      }
    }
    if (left_out) dependence.seen(step, std::move(by_rank));
    return;
  }
}

// Ranks on which no parameter got a gradient in the first such step; empty if some rank used a part
// of them only.
std::vector<int> without_any(const Timeline& timeline, const Dependence& dependence) {
  std::vector<int> ranks;
  for (const auto& [rank, ids] : dependence.unused_by_rank) {
    if (ids.empty()) continue;
    if (ids.size() < timeline.trainable().size()) return {};
    ranks.push_back(rank);
  }
  return ranks;
}

Verdict check_rank_dependent_graph(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  Dependence dependence;
  compare_complete(timeline, steps, dependence);
  compare_split(timeline, dependence);
  if (!dependence.first_step) {
    if (steps.empty()) return Undecidable{kNoCompleteStep};
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
  if (dependence.frozen) {
    finding.evidence["kind"] = "requires_grad";
    finding.message = fmt::format(
        "From step {} on, requires_grad of {} is False on {} and True on the other ranks: ranks "
        "without a gradient contribute zeros to the mean, or the others wait for them.",
        *finding.first_step, list_of(finding.parameters), ranks_of(finding.ranks));
    finding.prescription = {
        "Freeze the same parameters on every rank, before the model is wrapped. "
        "find_unused_parameters=True would hide it: the gradient would be the sum of fewer ranks, "
        "divided by all.",
        ""};
    return std::vector{finding};
  }
  if (const auto ranks = without_any(timeline, dependence); !ranks.empty()) {
    finding.evidence["kind"] = "no-gradient";
    finding.parameters.clear();  // all of them
    finding.message = fmt::format(
        "No parameter got a gradient on {} in step {}, although the others had some: that "
        "backward did not reach the model (an empty or masked batch, a new tensor as the loss), so "
        "the reducer took no part in the others' reduction.",
        ranks_of(ranks), *finding.first_step);
    finding.prescription = {
        "Keep the loss connected to the model on every rank, for example by adding 0 * "
        "output.sum() of a forward on a dummy sample. find_unused_parameters=True does not help: "
        "it needs one parameter with a gradient.",
        ""};
    return std::vector{finding};
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

const Rule kRankDependentGraph = {.code = "DDP202",
                                  .name = "rank-dependent-graph",
                                  .severity = Severity::kError,
                                  .headline = "a parameter is used on some ranks and not on others",
                                  .check = check_rank_dependent_graph,
                                  .scope = Scope::kWrapper,
                                  .needs = {.ranks = 2},  // a step may end on one rank only
                                  .names_unused = NamesUnused::kSomewhere,
                                  // The reducer never finishes: every gradient of the step stays
                                  // local, and the next forward raises.
                                  .explains = {{&kGradientsOutOfSync},
                                               {&kPartialSync},
                                               {&kStepDependentGraph},
                                               {&kStaticGraphViolated},
                                               {&kWeightsDrift},
                                               {&kRankCrashed, "unfinished-reduction"},
                                               {&kRankCrashed, "static-graph"},
                                               {&kStalledRank},
                                               {&kCollectiveMismatch},
                                               {&kUnevenInputs},
                                               {&kRankLocalCollective}}};

}  // namespace ddp_doctor
