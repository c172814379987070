// SPDX-License-Identifier: BSD-3-Clause
// DDP111: ranks issue different hand-written collectives for their gradients, as in
// `if p.grad is not None: all_reduce(p.grad)`.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

using Calls = std::vector<const Collective*>;

// The calls by which a rank synchronized its gradients between backward and step, in order. Single
// numbers are losses and metrics.
Calls gradient_calls(const TimelineStep& step, int rank, bool wrapped) {
  Calls calls;
  for (const auto* call : calls_before_step(step, rank)) {
    const bool on_one = call->target.starts_with("gradient");
    if (!on_one && (wrapped || call->numel < 2)) continue;
    calls.insert(calls.end(), static_cast<std::size_t>(call->count), call);
  }
  return calls;
}

// Whether two ranks' calls pair up as intended. A target that one of them lacks (a copy, a gradient
// created after the first call) proves nothing.
bool pair_up(const Calls& a, const Calls& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto* x, const auto* y) {
    return x->op == y->op && x->numel == y->numel &&
           (x->target.empty() || y->target.empty() || x->target == y->target);
  });
}

std::set<std::string> targets_of(const Calls& calls) {
  std::set<std::string> targets;
  for (const auto* call : calls) targets.insert(call->target);
  targets.erase("");
  return targets;
}

const Collective* first_gradient_call(const TimelineStep& step) {
  for (const int rank : *step.here) {
    const auto calls = calls_before_step(step, rank);
    if (!calls.empty()) return calls.front();
  }
  return nullptr;
}

Prescription prescription() {
  return {
      "Issue the same collectives in the same order on every rank: loop over all parameters, and "
      "reduce zeros where a gradient is missing (p.grad = torch.zeros_like(p)).",
      ""};
}

// Targets that some ranks synchronized and others did not, or not at the same time.
std::set<std::string> not_everywhere(const std::map<int, Calls>& by_rank) {
  std::map<std::string, std::size_t> ranks;
  for (const auto& [rank, calls] : by_rank) {
    for (const auto& target : targets_of(calls)) ++ranks[target];
  }
  std::set<std::string> targets;
  for (const auto& [target, count] : ranks) {
    if (count < by_rank.size()) targets.insert(target);
  }
  if (!targets.empty()) return targets;
  // The same ones in another order.
  const Calls& first = by_rank.begin()->second;
  for (const auto& [rank, calls] : by_rank) {
    for (std::size_t i = 0; i < std::min(first.size(), calls.size()); ++i) {
      if (calls[i]->target != first[i]->target)
        targets.insert({calls[i]->target, first[i]->target});
    }
  }
  return targets;
}

// The ranks of each process group issued the same calls in it; the others take no part.
bool pair_up_by_group(const Timeline& timeline, const std::map<int, Calls>& by_rank) {
  std::map<std::string, std::map<int, Calls>> by_group;
  for (const auto& [rank, calls] : by_rank) {
    for (const auto* call : calls) by_group[call->group][rank].push_back(call);
  }
  return std::all_of(by_group.begin(), by_group.end(), [&](const auto& entry) {
    const auto& calls = entry.second;
    const auto members = members_of(timeline, entry.first);
    const auto here = std::count_if(members.begin(), members.end(),
                                    [&](int rank) { return by_rank.contains(rank); });
    return static_cast<std::ptrdiff_t>(calls.size()) == here &&
           std::all_of(calls.begin(), calls.end(), [&](const auto& member) {
             return pair_up(member.second, calls.begin()->second);
           });
  });
}

// Whatever was exchanged, ranks stepped with the same gradients to the same weights.
bool came_out_right(const Timeline& timeline, const TimelineStep& step) {
  return step.examined() && differing(timeline, step, Stage::kGradient).empty() &&
         differing(timeline, step, Stage::kWeight).empty();
}

// A server of parameters has no backward, so what it issues is not told from other calls.
bool every_rank_has_a_backward(const TimelineStep& step) {
  const auto records = step.records();
  return std::all_of(records.begin(), records.end(),
                     [](const StepRecord* record) { return record->backwards > 0; });
}

// In a step that every rank completed.
std::optional<Finding> in_a_complete_step(const Timeline& timeline) {
  for (const auto* step : complete_steps(timeline)) {
    std::map<int, Calls> by_rank;
    for (int rank : timeline.ranks())
      by_rank[rank] = gradient_calls(*step, rank, timeline.has_wrapper());
    if (pair_up_by_group(timeline, by_rank) || !every_rank_has_a_backward(*step) ||
        came_out_right(timeline, *step))
      continue;
    Finding finding = finding_of(kRankDependentManualSync);
    finding.first_step = step->number;
    std::size_t max_calls = 0;
    for (const auto& [rank, calls] : by_rank) max_calls = std::max(max_calls, calls.size());
    for (const auto& [rank, calls] : by_rank) {
      if (calls.size() < max_calls) finding.ranks.push_back(rank);
      finding.evidence["calls"][std::to_string(rank)] = calls.size();
    }
    if (finding.ranks.empty()) finding.ranks = timeline.ranks();
    const auto left_out = not_everywhere(by_rank);
    for (int id : timeline.trainable()) {
      const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
      if (left_out.contains("gradient of " + name))
        finding.parameters.push_back(parameter_of(timeline, id));
    }
    if (const auto* call = first_gradient_call(*step))
      finding.where = Where{call->file, call->line};
    finding.message = fmt::format(
        "Ranks issued different hand-written collectives for their gradients in step {}: {}.",
        step->number,
        finding.parameters.empty()
            ? "their number or sizes differ"
            : "some ranks did not synchronize " + list_of(finding.parameters) +
                  ", or not in the same order");
    finding.prescription = prescription();
    return finding;
  }
  return {};
}

// Parameters by their gradient on `rank`. Two parameters may have one gradient by construction:
// these are left out.
std::map<std::array<std::uint8_t, 16>, int> by_gradient(const TimelineStep& step,
                                                        const std::vector<int>& ids, int rank) {
  std::map<std::array<std::uint8_t, 16>, std::vector<int>> all;
  for (int id : ids) {
    const auto seen = step.find(rank, id, Stage::kGradient);
    if (seen && seen->max_abs > 0.0) all[seen->bits].push_back(id);
  }
  std::map<std::array<std::uint8_t, 16>, int> single;
  for (const auto& [bits, its] : all) {
    if (its.size() == 1) single.emplace(bits, its.front());
  }
  return single;
}

// Parameters whose gradient on `rank` is, bit for bit, the first rank's gradient of another
// parameter of the same shape.
std::set<int> exchanged(const TimelineStep& step, const std::vector<int>& ids, int rank) {
  std::set<int> found;
  if (rank == step.first_rank()) return found;
  const auto on_first = by_gradient(step, ids, step.first_rank());
  for (const auto& [bits, id] : by_gradient(step, ids, rank)) {
    const auto other = on_first.find(bits);
    if (other == on_first.end() || other->second == id) continue;
    if (step.find(rank, id, Stage::kGradient)->numel >= 2) found.insert(id);
  }
  return found;
}

// Over these parameters together every rank has the same norm and the same largest element of the
// gradient, and most of them differ in both: the same values in other places. Gradients that each
// rank clipped to one norm have another largest element.
bool permuted(const TimelineStep& step, const std::vector<int>& ids) {
  constexpr double kRounding = 1e-6;
  struct Size {
    double squares = 0.0, largest = 0.0;
  };
  std::vector<Size> sizes;
  std::size_t apart = 0;
  for (const int rank : *step.here) {
    auto& size = sizes.emplace_back();
    for (const int id : ids) {
      const auto seen = step.find(rank, id, Stage::kGradient);
      if (!seen || seen->nonfinite > 0) return false;
      size.squares += seen->l2_norm * seen->l2_norm;
      size.largest = std::max(size.largest, seen->max_abs);
    }
  }
  const auto near = [](double a, double b) { return std::abs(a - b) <= kRounding * std::abs(b); };
  for (const int id : ids) {
    const auto first = step.find(step.first_rank(), id, Stage::kGradient);
    const auto other = step.find(step.here->back(), id, Stage::kGradient);
    apart += !near(first->l2_norm, other->l2_norm) && !near(first->max_abs, other->max_abs);
  }
  return sizes.front().largest > 0.0 && 2 * apart > ids.size() &&
         std::ranges::all_of(sizes, [&](const Size& size) {
           return near(size.squares, sizes.front().squares) &&
                  near(size.largest, sizes.front().largest);
         });
}

// One flat buffer for all gradients, filled in a different order on each rank: each rank steps on
// the means of other parameters.
std::optional<Finding> in_another_order(const Timeline& timeline) {
  for (const auto* step : complete_steps(timeline)) {
    if (step->first()->collectives == 0) continue;
    const auto ids = differing(timeline, *step, Stage::kGradient);
    if (ids.size() < 2) continue;
    std::set<int> parameters;
    for (int rank : timeline.ranks()) parameters.merge(exchanged(*step, ids, rank));
    const bool whole = parameters.size() >= 2;  // means of other parameters, of the same shape
    if (!whole && !permuted(*step, ids)) continue;
    if (!whole) parameters = {ids.begin(), ids.end()};
    Finding finding = finding_of(kRankDependentManualSync);
    finding.first_step = step->number;
    finding.ranks = timeline.ranks();
    finding.parameters = parameters_of(timeline, parameters);
    finding.evidence["exchanged"] = parameters.size();
    if (const auto* call = first_gradient_call(*step))
      finding.where = Where{call->file, call->line};
    finding.message = fmt::format(
        "In step {} gradients are exchanged among {}: {}. Ranks that fill one buffer in different "
        "orders do this.",
        step->number, list_of(finding.parameters),
        whole ? "a rank has, bit for bit, the gradient that another rank has for a different "
                "parameter"
              : "every rank has the same values, in other places");
    finding.prescription = {
        "Fill and read the buffer in an order that is the same on every rank, such as "
        "model.parameters(). The order in which gradients arrive differs.",
        ""};
    return finding;
  }
  return {};
}

Verdict check_rank_dependent_manual_sync(const Timeline& timeline) {
  const auto divergence = divergence_of(timeline);
  const bool hangs = divergence && divergence->reason == Reason::kManualSync;
  if (auto finding = in_a_complete_step(timeline);
      finding && (!hangs || *finding->first_step < divergence->step))
    return std::vector{*finding};
  if (!hangs) {
    if (auto finding = in_another_order(timeline)) return std::vector{*finding};
    return std::vector<Finding>{};
  }

  Finding finding = finding_of(kRankDependentManualSync, timeline, *divergence);
  for (int id : timeline.trainable()) {
    const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
    if (std::count(divergence->parameters.begin(), divergence->parameters.end(), name) > 0)
      finding.parameters.push_back(parameter_of(timeline, id));
  }
  finding.message = fmt::format(
      "Ranks issued different hand-written collectives for their gradients and wait for each other "
      "in step {}: {}{}.",
      *finding.first_step, waiting_in(*divergence),
      finding.parameters.empty()
          ? ""
          : fmt::format("; {} did not synchronize {}", ranks_of(finding.ranks),
                        list_of(finding.parameters)));
  finding.prescription = prescription();
  return std::vector{finding};
}

}  // namespace

const Rule kRankDependentManualSync = {
    .code = "DDP111",
    .name = "rank-dependent-manual-sync",
    .severity = Severity::kError,
    .headline = "ranks issue different hand-written collectives for their gradients",
    .check = check_rank_dependent_manual_sync,
    .needs = {.ranks = 2},
    .on_mesh = OnMesh::kNotChecked,
    .explains = {{&kGradientsOutOfSync},
                 {&kPartialSync},
                 {&kRankDependentGraph},
                 {&kStepDependentGraph},
                 {&kWeightsDrift},
                 {&kStalledRank},
                 {&kCollectiveMismatch},
                 {&kUnevenInputs},
                 {&kRankCrashed}}};

}  // namespace ddp_doctor
