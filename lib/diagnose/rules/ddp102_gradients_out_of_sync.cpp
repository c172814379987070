// SPDX-License-Identifier: BSD-3-Clause
// DDP102: the optimizer's gradients are not bit-identical on every rank.
//
// Three causes are named: nothing in the program could have synchronized them, a communication hook
// that returned what it was given, and ranks that changed them after they were equal.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// There is no wrapper, and no step has collectives that could have carried the gradients: a loss or
// a metric is smaller than they are, even if they were compressed to a byte each. Nor did anything
// else, unseen, make a gradient equal.
bool nothing_synchronizes(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  if (timeline.has_wrapper()) return false;
  for (const auto* step : steps) {
    const auto ids = agreeing(timeline, *step);
    if (std::any_of(ids.begin(), ids.end(),
                    [&](int id) { return local_gradients_differ(timeline, *step, id); }))
      return false;
  }
  std::int64_t elements = 0;
  for (int id : timeline.trainable())
    elements += timeline.tensors[static_cast<std::size_t>(id)].numel;
  return std::all_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
    const auto records = step.records();
    return std::all_of(records.begin(), records.end(), [&](const StepRecord* record) {
      return record->collectives == 0 || record->collective_bytes < elements;
    });
  });
}

// The reducer ran, and each rank got its own gradients back.
bool reduced_to_itself(const TimelineStep& step, const std::vector<int>& differing) {
  return std::all_of(differing.begin(), differing.end(), [&](int id) {
    return std::all_of(step.here->begin(), step.here->end(), [&](int rank) {
      const auto local = step.find(rank, id, Stage::kLocalGradient);
      const auto reduced = step.find(rank, id, Stage::kReducedGradient);
      return local && reduced && local->bits == reduced->bits;
    });
  });
}

// Ranks whose gradients the reducer had made equal, and that changed them since; empty if it had
// not.
std::set<int> changed_since(const TimelineStep& step, const std::vector<int>& differing) {
  std::set<int> ranks;
  for (int id : differing) {
    const auto reduced = step.groups(id, Stage::kReducedGradient);
    if (reduced.size() != 1 || reduced.front().size() != step.expected()) return {};
    for (int rank : reduced.front()) {
      const auto before = step.find(rank, id, Stage::kReducedGradient);
      const auto now = step.find(rank, id, Stage::kGradient);
      if (!now || now->bits != before->bits) ranks.insert(rank);
    }
  }
  return ranks;
}

void blame_change(Finding& finding, const std::set<int>& ranks, std::size_t seen) {
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["kind"] = "changed-after-reduction";
  finding.message = fmt::format(
      "The gradients were equal on every rank after the reduction, and {} changed them afterwards: "
      "at optimizer.step they differ across ranks in {} of {}.",
      ranks_of(finding.ranks), finding.evidence["steps_apart"].get<std::size_t>(),
      count_of(seen, "step"));
  // Averaging them again would only hide it.
  finding.prescription = {
      "Do what happens to the gradients between backward and optimizer.step, such as clipping, in "
      "the same way on every rank.",
      ""};
}

void blame_missing_wrapper(const Timeline& timeline, Finding& finding, std::size_t seen) {
  if (auto made = where(timeline, "optimizer")) finding.where = std::move(made);
  finding.evidence["kind"] = "never-synchronized";
  finding.message = fmt::format(
      "Nothing synchronizes the gradients: the model is not wrapped in DistributedDataParallel, "
      "and no collective of the program carries gradients. Each of the {} ranks trains its own "
      "model; gradients differ in {} of {}.",
      timeline.ranks().size(), finding.evidence["steps_apart"].get<std::size_t>(),
      count_of(seen, "step"));
  finding.prescription = {
      "Wrap the model before the optimizer is constructed: model = DistributedDataParallel(model). "
      "Its constructor also copies rank 0's weights to every rank.",
      "ddp",
      {},
      {"allreduce-flat"}};
}

void blame_hook(const Timeline& timeline, Finding& finding, const std::string& hook,
                std::size_t seen) {
  if (auto registered = where(timeline, "comm-hook")) finding.where = std::move(registered);
  finding.evidence["kind"] = "comm-hook";
  finding.evidence["hook"] = hook;
  finding.message = fmt::format(
      "The communication hook {} returned each rank's own gradients to the reducer: it does not "
      "average them. At optimizer.step gradients differ across ranks in {} of {}.",
      hook, finding.evidence["steps_apart"].get<std::size_t>(), count_of(seen, "step"));
  finding.prescription = {
      "Return the mean over all ranks from the hook: all-reduce bucket.buffer() divided by the "
      "world size. Without a hook DistributedDataParallel does this itself.",
      "allreduce-flat"};
}

Verdict check_gradients_out_of_sync(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (averages_weights(timeline)) return Undecidable{kAveragesWeights};

  Finding finding = finding_of(kGradientsOutOfSync);
  finding.where = where(timeline, "step");
  std::set<int> parameters;
  std::size_t apart = 0;
  bool collectives = false;
  bool to_itself = true;
  bool was_equal = true;
  std::set<int> changed;  // which ranks changed what was equal
  for (const auto* step : steps) {
    for (const auto* record : step->records()) collectives = collectives || record->collectives > 0;
    const auto ids = differing(timeline, *step, Stage::kGradient);
    if (ids.empty()) continue;
    ++apart;
    parameters.insert(ids.begin(), ids.end());
    to_itself = to_itself && reduced_to_itself(*step, ids);
    const auto since = changed_since(*step, ids);
    was_equal = was_equal && !since.empty();
    changed.insert(since.begin(), since.end());
    if (!finding.first_step) finding.first_step = step->number;
  }
  if (apart == 0) return std::vector<Finding>{};
  const bool all = parameters.size() == timeline.trainable().size();
  finding.ranks = timeline.ranks();
  if (!all) finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["steps_apart"] = apart;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["parameters_apart"] = parameters.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.message = fmt::format(
      "At optimizer.step the gradient of {} differs across ranks, in {} of {}.",
      all ? "every parameter" : list_of(finding.parameters), apart, count_of(steps.size(), "step"));
  finding.prescription = {
      "Average the gradients over all ranks after the last backward of each step: let "
      "DistributedDataParallel do it, or all-reduce every parameter's gradient, with zeros on "
      "ranks that have none.",
      collectives ? "allreduce-flat" : "ddp",
      {},
      {"allreduce-flat"}};
  if (nothing_synchronizes(timeline, steps)) {
    blame_missing_wrapper(timeline, finding, steps.size());
  } else if (const auto hook = comm_hook_of(timeline); hook && to_itself) {
    blame_hook(timeline, finding, *hook, steps.size());
  } else if (was_equal) {
    blame_change(finding, changed, steps.size());
  }
  return std::vector{finding};
}

}  // namespace

const Rule kGradientsOutOfSync = {
    .code = "DDP102",
    .name = "gradients-out-of-sync",
    .severity = Severity::kError,
    .headline = "gradients differ across ranks at optimizer.step",
    .check = check_gradients_out_of_sync,
    .needs = {.ranks = 2, .steps = 1},
    .on_mesh = OnMesh::kNotChecked,
    .only_a_difference = true,
    // A wrapper would also have broadcast rank 0's weights and buffers.
    .explains = {{&kInitialWeightsDiffer, "", "never-synchronized"},
                 {&kBuffersDrift, "", "never-synchronized"},
                 {&kWeightsDrift},
                 {&kStalledRank}}};

}  // namespace ddp_doctor
