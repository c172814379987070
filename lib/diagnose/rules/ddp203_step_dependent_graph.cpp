// SPDX-License-Identifier: BSD-3-Clause
// DDP203: the set of used parameters changes from step to step.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// The step had no backward at all, or used another wrapper, which may share parameters with this
// one.
bool took_no_part(const Timeline& timeline, const TimelineStep& step) {
  const auto* record = step.first();
  if (record->backwards == 0) return true;
  if (!timeline.wrapper || record->forwards_through_wrapper + record->forwards_around_wrapper > 0)
    return false;
  const auto actions = actions_of(record->trace);
  return std::any_of(actions.begin(), actions.end(),
                     [](const auto& action) { return action.first.starts_with("F"); });
}

Verdict check_step_dependent_graph(const Timeline& timeline) {
  // DDP206 reports a graph that changes although static_graph is set.
  if (!timeline.has_wrapper() || timeline.flag("static_graph")) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kStepDependentGraph);
  std::map<int, bool> before;  // by parameter: unused when an optimizer last stepped for it
  std::set<int> changing;
  std::size_t changes = 0;
  for (const auto* step : steps) {
    if (took_no_part(timeline, *step) || is_outer_step(timeline, *step)) continue;
    const auto now = unused_on_every_rank(timeline, *step);
    bool changed = false;
    for (int id : timeline.trainable()) {
      if (!step->usage(step->first_rank(), id)) continue;  // a step of another optimizer
      const auto [at, fresh] = before.try_emplace(id, now.contains(id));
      if (fresh || at->second == now.contains(id)) continue;
      at->second = now.contains(id);
      changing.insert(id);
      changed = true;
    }
    changes += changed ? 1 : 0;
    if (changed && !finding.first_step) finding.first_step = step->number;
  }
  if (changing.empty()) return std::vector<Finding>{};
  const bool expected = timeline.flag("find_unused_parameters");
  finding.severity = expected ? Severity::kAdvice : Severity::kWarning;
  finding.where = where(timeline, "wrap");
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, changing);
  finding.evidence["changes"] = changes;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Some steps use {} and others do not (first change in step {}, {} in {} seen){}.",
      list_of(finding.parameters), *finding.first_step, count_of(changes, "change"),
      count_of(steps.size(), "step"),
      expected ? "; find_unused_parameters=True allows this, static_graph=True would not" : "");
  finding.prescription =
      expected
          ? Prescription{"Keep find_unused_parameters=True.", ""}
          : Prescription{
                "Wrap with find_unused_parameters=True, or use the same parameters in every step.",
                "ddp-find-unused",
                {},
                {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kStepDependentGraph = {
    .code = "DDP203",
    .name = "step-dependent-graph",
    .severity = Severity::kWarning,
    .headline = "the set of used parameters changes between steps",
    .check = check_step_dependent_graph,
    .scope = Scope::kWrapper,
    .needs = {.steps = 2},
    .names_unused = NamesUnused::kSomewhere,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
