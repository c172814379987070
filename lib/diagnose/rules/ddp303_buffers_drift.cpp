// SPDX-License-Identifier: BSD-3-Clause
// DDP303: buffers differ across ranks, and nothing synchronizes them again.
//
// With broadcast_buffers=True (the default) DistributedDataParallel broadcasts rank 0's buffers
// before every forward: they may differ in between.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

bool is_broadcast(const Timeline& timeline, const TensorInfo& tensor) {
  if (!tensor.wrapper && !timeline.wrapper) return false;
  const int wrapper = tensor.wrapper.value_or(timeline.wrapper.value_or(0));
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    for (const auto& field : record->ddp_fields) {
      if (field.wrapper == wrapper && field.moment == "construction" &&
          field.key == "broadcast_buffers")
        return field.value != "0";
    }
  }
  return true;
}

// The program passes it to a collective, such as once per epoch: no step may show it.
bool is_brought_together(const Timeline& timeline, const TensorInfo& tensor) {
  const auto* record = timeline.record(timeline.first_rank());
  const std::string target = "weight of " + tensor.name;
  return std::any_of(record->calls.begin(), record->calls.end(), [&](const LoggedCall& call) {
    return call.target == target &&
           (call.op.starts_with("all_reduce") || call.op.starts_with("broadcast"));
  });
}

// Of a module without parameters, in a program with a wrapper: the centre of a loss, a queue.
bool is_of_a_loss(const Timeline& timeline, const TensorInfo& tensor) {
  const std::string module = tensor.module + ".";
  return !tensor.wrapper && !tensor.module.empty() && timeline.has_wrapper() &&
         std::none_of(timeline.tensors.begin(), timeline.tensors.end(), [&](const auto& other) {
           return other.kind == "parameter" && name_in_model(other.name).starts_with(module);
         });
}

// Every step writes all of it, as a moving average. A queue that each rank fills with its own
// samples is written in part.
bool is_statistic(const std::vector<const TimelineStep*>& steps, const TensorInfo& tensor) {
  constexpr std::size_t kEnough = 3;
  std::optional<Sample> before;
  std::size_t changes = 0;
  for (const auto* step : steps) {
    auto seen = step->sample(step->first_rank(), tensor.id, Stage::kBuffer);
    if (!seen) continue;
    for (std::size_t i = 0; before && i < seen->values.size(); ++i) {
      if (seen->values[i] == before->values[i]) return false;
    }
    changes += before ? 1 : 0;
    before = seen;
  }
  return changes >= kEnough;
}

// It differs across ranks and is not equal again in any later step.
bool stays_apart(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                 const TensorInfo& tensor) {
  const bool of_a_loss = is_of_a_loss(timeline, tensor);
  if (is_brought_together(timeline, tensor)) return false;
  if (of_a_loss ? !is_statistic(steps, tensor) : is_broadcast(timeline, tensor)) return false;
  bool apart = false;
  for (const auto* step : steps) {
    const bool here = step->groups(tensor.id, Stage::kBuffer).size() > 1;
    if (apart && !here) return false;
    apart = here;
  }
  return apart;
}

bool is_of_batch_norm(const TensorInfo& tensor) {
  return tensor.name.ends_with("running_mean") || tensor.name.ends_with("running_var") ||
         tensor.name.ends_with("num_batches_tracked");
}

// Each rank writes its own values in every step, and the wrapper overwrites them by rank 0's before
// the next forward. BatchNorm does no better, and trains without them.
std::vector<Finding> overwritten(const Timeline& timeline,
                                 const std::vector<const TimelineStep*>& steps) {
  std::set<int> ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "buffer" || !tensor.wrapper || is_of_batch_norm(tensor)) continue;
    if (!is_broadcast(timeline, tensor) || !is_statistic(steps, tensor)) continue;
    if (std::ranges::all_of(steps, [&](const TimelineStep* step) {
          return step->groups(tensor.id, Stage::kBuffer).size() > 1;
        }))
      ids.insert(tensor.id);
  }
  if (ids.empty()) return {};
  Finding finding = finding_of(kBuffersDrift);
  finding.severity = Severity::kAdvice;
  finding.certainty = Certainty::kLikely;
  finding.ranks = timeline.ranks();
  finding.first_step = steps.front()->number;
  finding.parameters = parameters_of(timeline, ids);
  finding.where = where(timeline, "wrap");
  finding.evidence["kind"] = "overwritten";
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "In each of {} every rank wrote values of its own to {}, and before the next forward "
      "DistributedDataParallel overwrote them by those of rank 0: what is computed from the other "
      "ranks' batches, as a codebook or a running mean, is lost.",
      count_of(steps.size(), "step"), list_of(finding.parameters));
  finding.prescription = {
      "All-reduce what is computed from the batch (sums and counts) before the buffer is updated.",
      ""};
  return {finding};
}

Verdict check_buffers_drift(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kBuffersDrift);
  std::set<int> apart;
  std::size_t affected = 0;
  for (const auto* step : steps) {
    bool here = false;
    for (const auto& tensor : timeline.tensors) {
      if (tensor.kind != "buffer" || !stays_apart(timeline, steps, tensor)) continue;
      if (step->groups(tensor.id, Stage::kBuffer).size() < 2) continue;
      apart.insert(tensor.id);
      here = true;
    }
    affected += here ? 1 : 0;
    if (here && !finding.first_step) finding.first_step = step->number;
  }
  if (apart.empty() || keeps_normalization_local(timeline, averaging_of(timeline)))
    return overwritten(timeline, steps);
  const bool wrapped = timeline.has_wrapper();
  const bool outside =
      wrapped && !timeline.wrapper && std::none_of(apart.begin(), apart.end(), [&](int id) {
        return timeline.tensors[static_cast<std::size_t>(id)].wrapper.has_value();
      });
  const bool of_losses = std::all_of(apart.begin(), apart.end(), [&](int id) {
    return is_of_a_loss(timeline, timeline.tensors[static_cast<std::size_t>(id)]);
  });
  if (!of_losses) finding.where = where(timeline, wrapped ? "wrap" : "step");
  finding.certainty = Certainty::kLikely;  // they may be meant, or made equal before they are used
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, apart);
  finding.evidence["buffers_apart"] = apart.size();
  finding.evidence["steps_apart"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Buffers differ across ranks ({}) in {} of {}, and nothing synchronizes them: {}.{}",
      list_of(finding.parameters), affected, count_of(steps.size(), "step"),
      of_losses ? "their module has no parameters and is in no wrapper"
      : outside ? "they are in no DistributedDataParallel wrapper"
      : wrapped ? "the wrapper was constructed with broadcast_buffers=False"
                : "this hand-written data-parallel loop does not broadcast buffers",
      of_losses ? " Each rank computes its loss with different statistics."
                : " Evaluation and checkpoints depend on the rank.");
  if (of_losses) {
    finding.prescription.text =
        "All-reduce what the module computes from its batch before it updates the buffer, and "
        "divide by the world size.";
  } else {
    finding.prescription = {wrapped
                                ? "Set broadcast_buffers=True, use SyncBatchNorm, or all-reduce "
                                  "the statistics before evaluation and saving."
                                : "Broadcast or all-reduce the buffers before evaluation and "
                                  "saving, or use SyncBatchNorm.",
                            "broadcast-buffers"};
  }
  return std::vector{finding};
}

}  // namespace

const Rule kBuffersDrift = {.code = "DDP303",
                            .name = "buffers-drift",
                            .severity = Severity::kWarning,
                            .headline = "buffers differ across ranks and stay different",
                            .check = check_buffers_drift,
                            .needs = {.ranks = 2, .steps = 1}};

}  // namespace ddp_doctor
