// SPDX-License-Identifier: BSD-3-Clause
// DDP205: a parameter's hook fired twice in one iteration. The reducer raised, or reduced what had
// arrived first and left the rest local.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// Also decided by a line of the traceback.
bool checkpoints_reentrantly(const Timeline& timeline, const std::string& text) {
  return went_through_checkpoint(text) || checkpoints_reentrantly(timeline);
}

// Parameters whose gradients differ and arrived more often than there were backward passes: in the
// reentrant backward of each checkpoint that used them.
std::set<int> arrived_again(const Timeline& timeline, const TimelineStep& step) {
  std::set<int> ids;
  const auto passes = backwards_of(step.first()->trace, *timeline.wrapper);
  if (std::none_of(passes.begin(), passes.end(), [](const auto& pass) { return pass.reduced; }))
    return ids;
  for (int id : differing(timeline, step, Stage::kGradient)) {
    const auto usage = step.usage(step.first_rank(), id);
    if (usage && usage->arrivals > static_cast<int>(passes.size()) &&
        timeline.tensors[static_cast<std::size_t>(id)].ddp_index)
      ids.insert(id);
  }
  return ids;
}

std::vector<Finding> without_error(const Timeline& timeline) {
  if (!timeline.wrapper || !checkpoints_reentrantly(timeline)) return {};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kMarkedReadyTwice);
  std::set<int> parameters;
  std::size_t affected = 0;
  for (const auto* step : steps) {
    const auto ids = arrived_again(timeline, *step);
    if (ids.empty()) continue;
    ++affected;
    parameters.insert(ids.begin(), ids.end());
    if (!finding.first_step) finding.first_step = step->number;
  }
  if (affected == 0) return {};
  finding.where = where(timeline, "backward");
  finding.ranks = timeline.ranks();
  if (parameters.size() < timeline.trainable().size())
    finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["reentrant_checkpointing"] = true;
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Gradients of {} arrived more than once in one backward, in {} of {}: several forwards used "
      "them in reentrant checkpoints, each with a backward of its own. The reducer averaged what "
      "arrived first; the rest stayed local, without an error from PyTorch.",
      finding.parameters.empty() ? "every parameter" : list_of(finding.parameters), affected,
      count_of(steps.size(), "step"));
  finding.prescription = {
      "Use checkpoint(..., use_reentrant=False), or run one forward of the wrapper for each "
      "backward.",
      "ddp-static-graph",
      {},
      {"allreduce-flat"}};
  return {finding};
}

Verdict check_marked_ready_twice(const Timeline& timeline) {
  Finding finding = finding_of(kMarkedReadyTwice);
  std::set<int> parameters;
  std::string text;
  for (int rank : timeline.ranks()) {
    const Event* error = timeline.error(rank);
    if (error == nullptr || error_kind(error->text) != "marked-twice") continue;
    finding.ranks.push_back(rank);
    finding.first_step = std::min(finding.first_step.value_or(error->step), error->step);
    if (const auto index = index_marked_twice(error->text)) {
      if (const auto id = parameter_at(timeline, *index)) parameters.insert(*id);
    }
    text = error->text;
  }
  if (finding.ranks.empty()) return without_error(timeline);
  const bool reentrant = checkpoints_reentrantly(timeline, text);
  const bool finds = timeline.flag("find_unused_parameters");
  finding.where = where(timeline, "backward");
  finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["error"] = telling_line(text);
  finding.evidence["reentrant_checkpointing"] = reentrant;
  finding.evidence["find_unused_parameters"] = finds;
  finding.message = fmt::format(
      "The reducer marked {} as ready twice in one iteration{}.",
      parameters.empty() ? "a parameter" : list_of(finding.parameters),
      reentrant && finds
          ? ": find_unused_parameters=True treats parameters inside reentrant checkpoints as "
            "unused and marks them, then the checkpoint's own backward marks them again"
      : reentrant ? ": reentrant checkpoints run a separate backward for it, more than once"
      : finds ? ": find_unused_parameters=True marks what the wrapper's forward does not use; what "
                "is called outside of it, such as model.module.head(h), or reached by a second "
                "backward, is marked again"
              : ": several backward passes reach it, for example because two parts of the model "
                "share it and each runs its own backward");
  finding.prescription = {
      reentrant && finds
          ? "Remove find_unused_parameters=True, or use checkpoint(..., use_reentrant=False). If "
            "some parameters really are unused, use static_graph=True."
      : reentrant ? "Use checkpoint(..., use_reentrant=False), or static_graph=True."
      : finds
          ? "Call every part of the model inside of the wrapper's forward, and run one backward."
          : "Use the parameter in one backward pass only, or wrap with static_graph=True.",
      reentrant && finds ? "ddp" : "ddp-static-graph",
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kMarkedReadyTwice = {.code = "DDP205",
                                .name = "marked-ready-twice",
                                .severity = Severity::kError,
                                .headline = "a parameter's hook fired twice in one iteration",
                                .check = check_marked_ready_twice,
                                .on_mesh = OnMesh::kHolds,
                                .explains = {{&kGradientsOutOfSync},
                                             {&kPartialSync},
                                             {&kNeedlessFindUnused},
                                             {&kWeightsDrift},
                                             {&kRankCrashed, "marked-twice"}}};

}  // namespace ddp_doctor
