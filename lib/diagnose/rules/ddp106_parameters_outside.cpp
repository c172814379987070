// SPDX-License-Identifier: BSD-3-Clause
// DDP106: the optimizer updates trainable parameters that no wrapper covers, and their gradients
// differ across ranks.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/rank_local.h"

namespace ddp_doctor {
namespace {

bool is_outside(const Timeline& timeline, const TimelineStep& step, int id) {
  const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
  const bool sharded = timeline.layout.placements.contains(tensor.name);
  if (tensor.ddp_index || sharded || timeline.rank_local.contains(id)) return false;
  for (int rank : step.distinct_users()) {
    const auto usage = step.usage(rank, id);
    if (usage && usage->used && usage->in_optimizer && !usage->replaced) return true;
  }
  return false;
}

// Where and when the first of them was created, if that was after a wrapper was constructed.
const Site* creation_of(const Timeline& timeline, const std::set<int>& ids) {
  for (int id : ids) {
    const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
    if (const auto* site = timeline.site("created " + name)) return site;
  }
  return nullptr;
}

// The first step in which the gradient of one of them differs; or of anything, from their creation
// on: they are not known yet in the step that creates them, but clipping by a norm that contains
// them changes all gradients.
std::int64_t first_step_of(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                           const std::set<int>& outside, const Site* creation) {
  const auto first = std::ranges::find_if(steps, [&](const TimelineStep* step) {
    const auto ids = differing(timeline, *step, Stage::kGradient);
    const bool created = creation != nullptr && step->number >= creation->step && !ids.empty();
    return created || std::ranges::any_of(ids, [&](int id) { return outside.contains(id); });
  });
  return (*first)->number;
}

// What reduces the gradients of the other parameters.
struct Reduction {
  std::string by = "any DistributedDataParallel wrapper";  // "outside ..."
  std::string others;  // why it does not cover these, if that is always the same
  Prescription prescription = {};
};

Reduction reduction_of(const Timeline& timeline) {
  const auto& placements = timeline.layout.placements;
  if (placements.empty()) return {};
  if (placements.begin()->second.front().placement.source == "DeepSpeed")
    return {"the DeepSpeed engine",
            "not in the model that deepspeed.initialize got",
            {"Give deepspeed.initialize one module that holds them, too, or all-reduce their "
             "gradients by hand before their optimizer.step().",
             ""}};
  return {"the sharding",
          "plain parameters beside sharded ones",
          {"Shard them too (fully_shard on the root module, no ignored parameters), or all-reduce "
           "their gradients by hand before optimizer.step().",
           ""}};
}

Verdict check_parameters_outside(const Timeline& timeline) {
  const auto covered = [&](int id) {
    return timeline.tensors[static_cast<std::size_t>(id)].ddp_index.has_value();
  };
  const auto trainable = timeline.trainable();
  const auto reduction = reduction_of(timeline);
  const bool sharded = !reduction.others.empty();
  if (!sharded && std::none_of(trainable.begin(), trainable.end(), covered))
    return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);

  Finding finding = finding_of(kParametersOutside);
  std::set<int> outside;
  bool unfrozen = false;
  bool ignored = false;
  for (const auto* step : steps) {
    for (int id : differing(timeline, *step, Stage::kGradient)) {
      if (!is_outside(timeline, *step, id)) continue;
      const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
      outside.insert(id);
      unfrozen = unfrozen || tensor.wrapper;
      ignored = ignored || is_ignored(timeline, tensor);
    }
  }
  if (outside.empty()) return std::vector<Finding>{};
  const Site* created = creation_of(timeline, outside);
  finding.first_step = first_step_of(timeline, steps, outside, created);
  finding.where =
      created ? Where{created->file, created->line, created->via} : where(timeline, "wrap");
  const auto apart = std::ranges::count_if(steps, [&](const TimelineStep* step) {
    return std::ranges::any_of(differing(timeline, *step, Stage::kGradient),
                               [&](int id) { return outside.contains(id); });
  });
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, outside);
  finding.evidence["parameters_outside"] = outside.size();
  finding.evidence["steps_apart"] = apart;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["in_a_wrapped_module"] = unfrozen;
  // Each rank may have been meant to have its own.
  if (ignored) finding.certainty = Certainty::kLikely;
  finding.message = fmt::format(
      "The optimizer updates {}, outside {}: {}. The gradients differ across ranks in {} of {}.",
      list_of(finding.parameters), reduction.by,
      created    ? "created after the model was wrapped"
      : ignored  ? "ignored, or reduced later, on request"
      : sharded  ? reduction.others.c_str()
      : unfrozen ? "frozen or missing when the model was wrapped"
                 : "the module was never wrapped",
      apart, count_of(steps.size(), "step"));
  const std::string construct_again =
      "Construct DistributedDataParallel again after unfreezing or adding parameters, or construct "
      "it when everything that will be trained requires gradients.";
  if (ignored) {
    finding.prescription = {
        "All-reduce their gradients by hand before optimizer.step(), or do not let "
        "DistributedDataParallel ignore them.",
        timeline.rank_local.empty() ? "allreduce-flat" : ""};  // which averages all parameters
  } else if (sharded) {
    finding.prescription = reduction.prescription;
  } else if (created) {  // no strategy wraps a model again
    finding.prescription = {construct_again, ""};
  } else {
    finding.prescription = {
        unfrozen ? construct_again
                 : "Wrap that module too, or make it a submodule of the wrapped one.",
        "ddp",
        {},
        {"allreduce-flat"}};
  }
  return std::vector{finding};
}

}  // namespace

const Rule kParametersOutside = {
    .code = "DDP106",
    .name = "parameters-outside-ddp",
    .severity = Severity::kError,
    .headline = "the optimizer updates parameters that no wrapper covers",
    .check = check_parameters_outside,
    .needs = {.ranks = 2, .steps = 1},
    .on_mesh = OnMesh::kNotChecked,
    .explains = {{&kInitialWeightsDiffer, "late"},
                 {&kNotReducedOverDimension},
                 {&kPartialSync},
                 {&kGradientsOutOfSync},
                 {&kWeightsDrift}}};

}  // namespace ddp_doctor
