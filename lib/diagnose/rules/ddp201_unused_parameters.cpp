// SPDX-License-Identifier: BSD-3-Clause
// DDP201: trainable parameters without a gradient on any rank, and why.
//
// With DistributedDataParallel's defaults the bucket of such a parameter never becomes ready, so
// *no* gradient of the step is averaged, the optimizer steps on local gradients, and only the next
// forward raises. If the wrapper allows it (find_unused_parameters, static_graph), or if nothing
// waits for the gradient, training is correct: advice.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

constexpr char kFrozen[] = "frozen";
constexpr char kReplaced[] = "replaced after wrapping";
constexpr char kNeverCalled[] = "never called";
constexpr char kDetached[] = "called, but detached from the output";
constexpr char kUnread[] = "its module ran, but the output does not depend on it";
constexpr char kListed[] = "in the list of the reducer's error";
constexpr char kNotInLoss[] = "called, but its output is not in the loss";

// Why one parameter got no gradient, in terms of the user's code.
const char* reason_for(const TimelineStep& step, int tensor) {
  bool reached = false;
  bool unknown = false;  // whether the module that ran read it
  bool in_output = false;
  bool seen = false;
  for (int rank : step.distinct_users()) {
    const auto usage = step.usage(rank, tensor);
    if (!usage) continue;
    seen = true;
    if (usage->frozen) return kFrozen;
    if (usage->replaced) return kReplaced;
    reached = reached || usage->reached.value_or(false);
    unknown = unknown || !usage->reached;
    in_output = in_output || usage->in_output.value_or(false);
  }
  if (!seen) return kListed;
  if (in_output) return kNotInLoss;
  if (reached) return kDetached;
  return unknown ? kUnread : kNeverCalled;
}

const char* sentence_for(const std::string& reason) {
  if (reason == kFrozen) return "requires_grad was set to False after wrapping";
  if (reason == kReplaced)
    return "replaced after wrapping, while the reducer waits for the original";
  if (reason == kListed)
    return "listed in PyTorch's error, and not held by the optimizer of that step (frozen, or not "
           "used in that backward)";
  if (reason == kNeverCalled)
    return "not read by any operation of the forward pass, so the module was not called";
  if (reason == kDetached) {
    return "the forward pass read it, but the result does not reach the output (detached, under "
           "no_grad, or discarded)";
  }
  if (reason == kUnread) {
    return "its module ran, but the output of forward does not depend on it (never read, detached, "
           "or discarded)";
  }
  return "the output of forward depends on it, but the loss does not: it does not use that output, "
         "or only a derivative of it";
}

std::string prescription_for(const std::string& reason) {
  if (reason == kFrozen)
    return "Set requires_grad=False before wrapping. A module without trained parameters needs no "
           "wrapper.";
  if (reason == kReplaced) return "Replace parameters before wrapping, or wrap again.";
  if (reason == kNeverCalled)
    return "Call the module in forward, or remove it (or set requires_grad=False before wrapping).";
  if (reason == kDetached)
    return "Make its result part of the loss (without detach or no_grad), or freeze it before "
           "wrapping.";
  if (reason == kUnread)
    return "Use it in what forward returns, remove it, or freeze it before wrapping.";
  return "Use that output in the loss, or do not compute it.";
}

struct Unused {
  std::set<int> tensors;
  std::int64_t first_step = 0;
  std::size_t steps = 0;  // how many of those seen
  const TimelineStep* step =
      nullptr;           // the step that shows the reason; null if it was not recorded
  bool dropped = false;  // earlier steps used them
};

// Indices that the reducer lists on every rank; nothing if some rank does not raise that error.
std::set<int> listed_on_every_rank(const Timeline& timeline) {
  std::set<int> common;
  for (int rank : timeline.ranks()) {
    const Event* error = timeline.error(rank);
    if (error == nullptr || error_kind(error->text) != "unfinished-reduction") return {};
    const auto listed = indices_in(error->text);
    std::set<int> here;
    for (int index : listed) {
      if (const auto id = parameter_at(timeline, index)) here.insert(*id);
    }
    if (rank == timeline.first_rank()) common = here;
    std::erase_if(common, [&](int id) { return !here.contains(id); });
  }
  return common;
}

// Parameters unused in every step seen; if there are none, those that the reducer's error lists.
Unused find_unused(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  Unused never{unused_on_every_rank(timeline, *steps.front()), steps.front()->number, steps.size(),
               steps.front()};
  for (const auto* step : steps) {
    if (never.tensors.empty()) break;
    const auto here = unused_on_every_rank(timeline, *step);
    std::erase_if(never.tensors, [&](int id) { return !here.contains(id); });
  }
  if (!never.tensors.empty()) return never;
  const auto listed = listed_on_every_rank(timeline);
  if (listed.empty()) return {};
  const std::int64_t number =
      std::max<std::int64_t>(timeline.error(timeline.first_rank())->step - 1, 1);
  const auto* step = timeline.step(number);
  return {listed, number, 1, step != nullptr && step->complete() ? step : nullptr, true};
}

// Where the graph ended in a collective, if that may be why: the forward read a parameter, and the
// output does not depend on it.
std::optional<Where> cut_by_collective(const Timeline& timeline, const Finding& finding) {
  const auto& reasons = finding.evidence["reasons"];
  if (!reasons.contains(kDetached) && !reasons.contains(kUnread)) return {};
  return where(timeline, "cut");
}

void describe(const Timeline& timeline, const Unused& found, Finding& finding) {
  std::map<std::string, std::vector<FindingParameter>> by_reason;
  for (int id : found.tensors) {
    const char* reason = found.step != nullptr ? reason_for(*found.step, id) : kListed;
    by_reason[reason].push_back(parameter_of(timeline, id));
  }
  const std::string when =
      found.dropped && found.first_step > 1
          ? fmt::format(" in step {}, although earlier steps produced one", found.first_step)
          : "";
  for (const auto& [reason, parameters] : by_reason) {
    for (const auto& parameter : parameters)
      finding.evidence["reasons"][reason].push_back(parameter.name);
    finding.message +=
        fmt::format("{}{} got no gradient on any rank{}{}: {}.", finding.message.empty() ? "" : " ",
                    list_of(parameters), timeline.whole() ? "" : " that was examined", when,
                    sentence_for(reason));
    if (!found.dropped) {
      finding.prescription.text += fmt::format("{}{}", finding.prescription.text.empty() ? "" : " ",
                                               prescription_for(reason));
    }
  }
}

// Some backward ran under no_sync.
bool runs_under_no_sync(const Timeline& timeline) {
  return std::any_of(timeline.steps.begin(), timeline.steps.end(), [](const TimelineStep& step) {
    return std::any_of(step.ranks.begin(), step.ranks.end(), [](const StepRecord* record) {
      return record != nullptr && record->unsynchronized_backwards > 0;
    });
  });
}

// The reducer still waits for them: find_unused_parameters looks from what forward returns, which
// depends on them.
bool are_not_found(const Timeline& timeline, const Unused& found) {
  if (!timeline.flag("find_unused_parameters")) return false;
  const auto listed = listed_on_every_rank(timeline);
  return std::any_of(listed.begin(), listed.end(),
                     [&](int id) { return found.tensors.contains(id); });
}

void prescribe(const Timeline& timeline, const Unused& found, Finding& finding) {
  auto& prescription = finding.prescription;
  if (timeline.flag("find_unused_parameters")) {
    prescription.text +=
        " find_unused_parameters=True does not find it: the output depends on it. If it must stay, "
        "freeze it before wrapping, or give it a gradient of zero (loss + 0.0 * parameter.sum()).";
    prescription.strategy = "allreduce-flat";
    return;
  }
  if (found.dropped) {
    prescription = {
        "Take the same path through the model in every step, or wrap with "
        "find_unused_parameters=True.",
        "ddp-find-unused"};
  } else if (finding.evidence["reasons"].contains(kNotInLoss)) {
    // static_graph fails if the loss does not use an output that forward returns (pytorch#97030).
    prescription.text += " If it must stay, use find_unused_parameters=True.";
    prescription.strategy = "ddp-find-unused";
  } else if (runs_under_no_sync(timeline)) {
    // With static_graph the first backward fails there, or later steps stay unreduced
    // (pytorch#143580, #187732).
    prescription.text += " If it must stay, use find_unused_parameters=True.";
    prescription.strategy = "ddp-find-unused";
  } else if (checkpoints_reentrantly(timeline)) {
    prescription.text +=
        " If it must stay, use find_unused_parameters=True; static_graph=True is not safe with the "
        "reentrant checkpoints of this run (use_reentrant=False avoids them).";
    prescription.strategy = "ddp-find-unused";
  } else {
    prescription.text +=
        " If it must stay, use static_graph=True if the set of used parameters never changes, "
        "otherwise find_unused_parameters=True.";
    prescription.strategy = "ddp-static-graph";
    prescription.alternatives = {"ddp-find-unused"};
  }
  prescription.fallbacks = {"allreduce-flat"};
}

Verdict check_unused_parameters(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  // DDP206 reports the unused set if the reducer found that a static graph changed.
  const Event* error = timeline.error(timeline.first_rank());
  if (error != nullptr && error_kind(error->text) == "static-graph") return std::vector<Finding>{};
  const Unused found = find_unused(timeline, steps);
  if (found.tensors.empty()) return std::vector<Finding>{};

  // If every backward runs under no_sync, the reducer waits for no parameter.
  const bool through_wrapper =
      timeline.has_wrapper() && std::any_of(steps.begin(), steps.end(), [](const auto* step) {
        const auto& record = *step->first();
        return record.forwards_through_wrapper > 0 &&
               record.backwards > record.unsynchronized_backwards;
      });
  const bool harmful =
      through_wrapper && (!wrapper_expects_unused(timeline) || are_not_found(timeline, found));
  Finding finding = finding_of(kUnusedParameters);
  finding.where = where(timeline, "wrap");
  // Ranks without a record may use them.
  if (!timeline.whole()) finding.certainty = Certainty::kLikely;
  finding.severity = harmful ? Severity::kError : Severity::kAdvice;
  finding.ranks = timeline.ranks();
  finding.first_step = found.first_step;
  finding.parameters = parameters_of(timeline, found.tensors);
  finding.evidence["parameters_unused"] = found.tensors.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.evidence["steps_unused"] = found.steps;
  finding.evidence["steps_seen"] = steps.size();
  describe(timeline, found, finding);
  if (auto cut = cut_by_collective(timeline, finding)) {
    finding.message += fmt::format(
        " {}:{} gives a tensor of the graph to a collective, and no gradient comes back through "
        "what it returns.",
        cut->file, cut->line);
    if (!harmful) {
      finding.severity = Severity::kWarning;
      finding.certainty = Certainty::kLikely;
      finding.where = std::move(cut);
      finding.prescription.text =
          "Use torch.distributed.nn.functional's collective there, or an autograd function of your "
          "own that reduces gradients in its backward; freeze the parameters if they are not to be "
          "trained.";
      return std::vector{finding};
    }
  }
  if (harmful) {
    prescribe(timeline, found, finding);
    finding.message += " Their bucket never became ready, so no gradient of the step was averaged";
    // A step of several backwards raises before the optimizer.
    finding.message += found.step != nullptr && found.step->first()->skipped
                           ? "; PyTorch raises an error at the next forward."
                           : " and the optimizer stepped on local gradients; PyTorch raises an "
                             "error only at the next forward.";
  } else if (through_wrapper) {
    finding.message +=
        " The wrapper's options allow this, so training is correct; the parameters only cost "
        "memory and communication.";
  } else {
    finding.message +=
        " Nothing waits for these gradients in this run; with DistributedDataParallel's defaults "
        "it would fail.";
  }
  return std::vector{finding};
}

}  // namespace

const Rule kUnusedParameters = {.code = "DDP201",
                                .name = "unused-parameters",
                                .severity = Severity::kError,
                                .headline = "trainable parameters got no gradient on any rank",
                                .check = check_unused_parameters,
                                .scope = Scope::kWrapper,
                                .needs = {.steps = 1},
                                .on_mesh = OnMesh::kHolds,
                                .names_unused = NamesUnused::kEverywhere,
                                // The reducer never finishes: every gradient of the step stays
                                // local, and the next forward raises.
                                .explains = {{&kGatherWithoutGradient},
                                             {&kGradientsOutOfSync},
                                             {&kPartialSync},
                                             {&kStepDependentGraph},
                                             {&kWeightsDrift},
                                             {&kRankCrashed, "unfinished-reduction"}}};

}  // namespace ddp_doctor
