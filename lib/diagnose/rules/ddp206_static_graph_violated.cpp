// SPDX-License-Identifier: BSD-3-Clause
// DDP206: static_graph=True requires that the set of used parameters never changes; it did, or the
// reducer reports that it did.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"

namespace ddp_doctor {
namespace {

struct Violation {
  std::set<int> ranks;
  std::set<int> parameters;  // whose use changed
  std::optional<std::int64_t> first_step;
  std::string error;  // the reducer's error, if it raised one
  bool is_no_sync() const { return is_static_graph_under_no_sync(error); }

  void seen(int rank, std::int64_t step) {
    ranks.insert(rank);
    first_step = std::min(first_step.value_or(step), step);
  }
};

// The used set of `rank` in the steps it completed.
void compare_steps(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                   int rank, Violation& violation) {
  const auto first = unused(timeline, *steps.front(), rank);
  for (const auto* step : steps) {
    const auto now = unused(timeline, *step, rank);
    if (now == first) continue;
    violation.seen(rank, step->number);
    std::set_symmetric_difference(first.begin(), first.end(), now.begin(), now.end(),
                                  std::inserter(violation.parameters, violation.parameters.end()));
  }
}

// The reducer's error. One text, raised in the backward itself, is about parameters that were
// unused in the first iteration. The other is raised one forward later and lists those that got no
// gradient.
void read_error(const Timeline& timeline, const TimelineStep* first, int rank,
                Violation& violation) {
  const Event* error = timeline.error(rank);
  if (error == nullptr || error_kind(error->text) != "static-graph") return;
  violation.error = telling_line(error->text);
  const auto indices = indices_in(error->text);
  const bool late = is_one_forward_late(error->text);
  violation.seen(rank, late ? std::max<std::int64_t>(error->step - 1, 1) : error->step);
  if (!violation.parameters.empty()) return;
  if (violation.is_no_sync()) return;
  if (!late && first != nullptr) violation.parameters = unused(timeline, *first, rank);
  for (int index : indices) {
    if (const auto id = parameter_at(timeline, index)) violation.parameters.insert(*id);
  }
}

// The reducer also raises if the loss does not use an output of forward, although the use of its
// parameters never changes.
bool only_in_unused_outputs(const TimelineStep& first, const std::set<int>& parameters) {
  return !parameters.empty() && std::all_of(parameters.begin(), parameters.end(), [&](int id) {
    const auto usage = first.usage(first.first_rank(), id);
    return usage && !usage->used && usage->in_output.value_or(false);
  });
}

std::string message_for(const Timeline& timeline, const TimelineStep* first,
                        const Violation& violation) {
  if (violation.is_no_sync()) {
    return "static_graph=True does not support gradient accumulation under no_sync: the first "
           "backward under no_sync starts a reduction that the reducer is not prepared for.";
  }
  if (violation.parameters.empty()) {
    return "static_graph=True is set, but the reducer found that the graph differs from the first "
           "iteration.";
  }
  const std::string names = list_of(parameters_of(timeline, violation.parameters));
  if (first != nullptr && only_in_unused_outputs(*first, violation.parameters)) {
    return fmt::format(
        "static_graph=True requires the loss to use every output of forward, and it does not use "
        "the output computed from {}.",
        names);
  }
  return fmt::format(
      "static_graph=True is set, but the use of {} changed after the first iteration.", names);
}

Verdict check_static_graph_violated(const Timeline& timeline) {
  if (!timeline.has_wrapper() || !timeline.flag("static_graph")) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  const TimelineStep* first = steps.empty() ? nullptr : steps.front();
  Violation violation;
  for (int rank : timeline.ranks()) {
    if (first != nullptr) compare_steps(timeline, steps, rank, violation);
    read_error(timeline, first, rank, violation);
  }
  if (violation.ranks.empty()) {
    if (first == nullptr) return Undecidable{kNoCompleteStep};
    return std::vector<Finding>{};
  }

  Finding finding = finding_of(kStaticGraphViolated);
  finding.where = where(timeline, "wrap");
  finding.ranks.assign(violation.ranks.begin(), violation.ranks.end());
  finding.first_step = violation.first_step;
  finding.parameters = parameters_of(timeline, violation.parameters);
  finding.evidence["steps_seen"] = steps.size();
  if (!violation.error.empty()) finding.evidence["error"] = violation.error;
  finding.message = message_for(timeline, first, violation);
  finding.prescription =
      violation.is_no_sync()
          ? Prescription{"Remove static_graph=True, or accumulate without no_sync.", "ddp"}
          : Prescription{
                "Replace static_graph=True with find_unused_parameters=True, or use the same "
                "parameters in every step.",
                "ddp-find-unused",
                {},
                {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kStaticGraphViolated = {.code = "DDP206",
                                   .name = "static-graph-violated",
                                   .severity = Severity::kError,
                                   .headline = "static_graph=True, but the graph changed",
                                   .check = check_static_graph_violated,
                                   .scope = Scope::kWrapper,
                                   .on_mesh = OnMesh::kHolds,
                                   .names_unused = NamesUnused::kSomewhere,
                                   .explains = {{&kGradientsOutOfSync},
                                                {&kStepDependentGraph},
                                                {&kWeightsDrift},
                                                {&kRankCrashed, "unfinished-reduction"},
                                                {&kRankCrashed, "static-graph"}}};

}  // namespace ddp_doctor
