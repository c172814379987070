// SPDX-License-Identifier: BSD-3-Clause
// DDP106: the optimizer updates trainable parameters that no wrapper covers, and their gradients
// differ across ranks.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

bool is_outside(const Timeline& timeline, const TimelineStep& step, int id) {
  const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
  if (tensor.ddp_index || timeline.rank_local.contains(id)) return false;
  for (int rank : step.distinct_users()) {
    const auto usage = step.usage(rank, id);
    if (usage && usage->used && usage->in_optimizer && !usage->replaced) return true;
  }
  return false;
}

// Where the first of them was created, if that was after a wrapper was constructed.
std::optional<Where> created_after_wrapping(const Timeline& timeline, const std::set<int>& ids) {
  for (int id : ids) {
    const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
    if (auto place = where(timeline, "created " + name)) return place;
  }
  return {};
}

Verdict check_parameters_outside(const Timeline& timeline) {
  if (all_ranks(timeline).size() < 2)
    return Undecidable{"there is only one rank, nothing to compare"};
  const auto covered = [&](int id) {
    return timeline.tensors[static_cast<std::size_t>(id)].ddp_index.has_value();
  };
  const auto trainable = timeline.trainable();
  if (std::none_of(trainable.begin(), trainable.end(), covered)) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{"no step was completed by every rank"};

  Finding finding = finding_of(kParametersOutside);
  std::set<int> outside;
  std::size_t apart = 0;
  bool unfrozen = false;
  for (const auto* step : steps) {
    bool here = false;
    for (int id : differing(timeline, *step, Stage::kGradient)) {
      if (!is_outside(timeline, *step, id)) continue;
      here = outside.insert(id).second || here || outside.contains(id);
      unfrozen = unfrozen || timeline.tensors[static_cast<std::size_t>(id)].wrapper;
    }
    apart += here ? 1 : 0;
  }
  if (outside.empty()) return std::vector<Finding>{};
  // In the step in which a parameter is added its use is not known yet, only its gradient.
  const auto first = std::find_if(steps.begin(), steps.end(), [&](const TimelineStep* step) {
    const auto ids = differing(timeline, *step, Stage::kGradient);
    return std::any_of(ids.begin(), ids.end(), [&](int id) { return outside.contains(id); });
  });
  finding.first_step = (*first)->number;
  const auto created = created_after_wrapping(timeline, outside);
  finding.where = created ? created : where(timeline, "wrap");
  finding.ranks = all_ranks(timeline);
  finding.parameters = parameters_of(timeline, outside);
  finding.evidence["parameters_outside"] = outside.size();
  finding.evidence["steps_apart"] = apart;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["in_a_wrapped_module"] = unfrozen;
  finding.message = fmt::format(
      "The optimizer updates {}, which no DistributedDataParallel wrapper covers: {}. Their "
      "gradients differ across ranks in {} of {}.",
      list_of(finding.parameters),
      created    ? "they were created after it was constructed"
      : unfrozen ? "they were frozen or missing when it was constructed"
                 : "their module was never wrapped",
      apart, count_of(steps.size(), "step"));
  finding.prescription = {
      unfrozen ? "Construct DistributedDataParallel again after unfreezing or adding parameters, "
                 "or construct it when everything that will be trained requires gradients."
               : "Wrap that module too, or make it a submodule of the wrapped one.",
      created ? "allreduce-flat" : "ddp",  // no strategy wraps a model again
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kParametersOutside = {"DDP106", "parameters-outside-ddp", Severity::kError,
                                 "the optimizer updates parameters that no wrapper covers",
                                 check_parameters_outside};

}  // namespace ddp_doctor
