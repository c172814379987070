// SPDX-License-Identifier: BSD-3-Clause
// DDP204: find_unused_parameters=True, and every parameter was used on every rank in every step
// seen.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// Steps that ran but whose parameters were not examined.
std::size_t steps_not_examined(const Timeline& timeline) {
  return static_cast<std::size_t>(
      std::count_if(timeline.steps.begin(), timeline.steps.end(),
                    [](const TimelineStep& step) { return step.number > 0 && !step.examined(); }));
}

// The reducer waits for the tensors that it was given: those that took their places are none of
// its.
bool any_replaced(const Timeline& timeline, const TimelineStep& step, int rank) {
  const auto ids = timeline.trainable();
  return std::any_of(ids.begin(), ids.end(), [&](int id) {
    const auto usage = step.usage(rank, id);
    return usage && usage->replaced;
  });
}

Verdict check_needless_find_unused(const Timeline& timeline) {
  if (!timeline.has_wrapper() || !timeline.flag("find_unused_parameters") ||
      timeline.flag("static_graph")) {
    return std::vector<Finding>{};
  }
  const auto steps = complete_steps(timeline);
  // The flag acts in the wrapper's own forward; where none ran, another rule speaks.
  const auto bypassed = [](const TimelineStep* step) {
    return step->first()->forwards_around_wrapper > 0 &&
           step->first()->forwards_through_wrapper == 0;
  };
  if (std::all_of(steps.begin(), steps.end(), bypassed))
    return Undecidable{"no forward went through the wrapper"};
  for (const auto* step : steps) {
    for (int rank : step->distinct_users()) {
      if (!unused(timeline, *step, rank).empty() || any_replaced(timeline, *step, rank))
        return std::vector<Finding>{};
    }
  }
  // If several optimizers share a wrapper, no step covers all its parameters; the backward does.
  if (timeline.wrapper &&
      timeline.fact(timeline.first_rank(), fmt::format("wrapper {}", *timeline.wrapper),
                    "partial") != nullptr)
    return std::vector<Finding>{};
  Finding finding = finding_of(kNeedlessFindUnused);
  finding.where = where(timeline, "wrap");
  finding.certainty =
      Certainty::kLikely;  // a branch that these steps did not take may leave a parameter unused
  finding.ranks = timeline.ranks();
  finding.first_step = steps.front()->number;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  const auto unseen = steps_not_examined(timeline);
  finding.evidence["steps_not_examined"] = unseen;
  finding.message = fmt::format(
      "find_unused_parameters=True is set, but all {} were used on every rank in the {} seen: each "
      "step traverses the autograd graph and all-reduces a usage map unnecessarily.",
      count_of(timeline.trainable().size(), "parameter"), count_of(steps.size(), "step"));
  if (unseen > 0)
    finding.message += fmt::format(" Which parameters the {} in between used is unknown.",
                                   count_of(unseen, "step"));
  finding.prescription = {
      unseen > 0 ? "Examine every step (--every 1) before you remove find_unused_parameters=True: "
                   "a branch that only some steps take may need it."
                 : "Remove find_unused_parameters=True, unless a branch that this run did not take "
                   "(other data, a later epoch) needs it.",
      "ddp"};
  return std::vector{finding};
}

}  // namespace

const Rule kNeedlessFindUnused = {.code = "DDP204",
                                  .name = "needless-find-unused",
                                  .severity = Severity::kAdvice,
                                  .headline = "find_unused_parameters=True, yet nothing was unused",
                                  .check = check_needless_find_unused,
                                  .scope = Scope::kWrapper,
                                  .needs = {.steps = 1, .all_ranks = true},
                                  .on_mesh = OnMesh::kHolds};

}  // namespace ddp_doctor
