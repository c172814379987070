// DDP201: trainable parameters without a gradient on any rank, and why.
//
// With DistributedDataParallel's defaults the bucket of such a parameter never becomes ready, so
// that *no* gradient of the step is averaged, the optimizer steps on local ones, and only the next
// forward raises. Where the wrapper was told to expect it (find_unused_parameters, static_graph),
// or where nothing waits for it, training is right: advice.

#include <fmt/format.h>

#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr char kFrozen[] = "frozen";
constexpr char kNeverCalled[] = "never called";
constexpr char kDetached[] = "called, but detached from the output";
constexpr char kNotInLoss[] = "called, but its output is not in the loss";

// Why one parameter got no gradient, in the words of somebody who looks for the line to change.
const char* reason_for(const Timeline& timeline, const TimelineStep& step, int tensor) {
  bool reached = false;
  bool in_output = false;
  for (int rank : all_ranks(timeline)) {
    const auto* usage = step.usage(rank, tensor);
    if (usage == nullptr) continue;
    if (usage->frozen) return kFrozen;
    reached = reached || usage->reached;
    in_output = in_output || usage->in_output;
  }
  if (!reached) return kNeverCalled;
  return in_output ? kNotInLoss : kDetached;
}

const char* sentence_for(const std::string& reason) {
  if (reason == kFrozen) return "requires_grad was switched off after wrapping";
  if (reason == kNeverCalled)
    return "no operation of the forward pass read it: its module is never called";
  if (reason == kDetached) {
    return "the forward pass reads it, but what it computes does not reach the output (detached, "
           "under no_grad, or dropped)";
  }
  return "its module is called and stands in the forward's output, but the loss leaves that output "
         "out";
}

std::string cure_for(const std::string& reason) {
  if (reason == kFrozen) return "Set requires_grad=False before wrapping.";
  if (reason == kNeverCalled)
    return "Call the module in forward, or remove it (or set requires_grad=False before wrapping).";
  if (reason == kDetached)
    return "Let its result reach the loss (no detach, no no_grad), or freeze it before wrapping.";
  return "Add that output to the loss, or do not compute it.";
}

struct Unused {
  std::set<int> tensors;
  const TimelineStep* step = nullptr;  // the first one at which all of them are unused
  std::size_t steps = 0;
};

// Parameters never used in any step seen; where there is none, those unused in the last step seen,
// if the reducer stumbled over them.
Unused find_unused(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  Unused never{unused_on_every_rank(timeline, *steps.front()), steps.front(), steps.size()};
  for (const auto* step : steps) {
    const auto here = unused_on_every_rank(timeline, *step);
    std::erase_if(never.tensors, [&](int id) { return !here.contains(id); });
  }
  if (!never.tensors.empty()) return never;
  const Event* error = timeline.error(0);
  const bool stumbled =
      error != nullptr &&
      error->text.find("Expected to have finished reduction") != std::string::npos;
  if (stumbled) return {unused_on_every_rank(timeline, *steps.back()), steps.back(), 1};
  return {};
}

Verdict check(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{"no step was completed by every rank"};
  // Where the reducer found that a static graph changed, the unused set is DDP206's to tell.
  const Event* error = timeline.error(0);
  if (error != nullptr && error->text.find("training graph has changed") != std::string::npos) {
    return std::vector<Finding>{};
  }
  const Unused found = find_unused(timeline, steps);
  if (found.tensors.empty()) return std::vector<Finding>{};

  const bool through_wrapper = found.step->ranks.front()->forwards_through_wrapper > 0;
  const bool harmful =
      timeline.has_wrapper() && through_wrapper && !wrapper_expects_unused(timeline);

  std::map<std::string, std::vector<FindingParameter>> by_reason;
  for (int id : found.tensors)
    by_reason[reason_for(timeline, *found.step, id)].push_back(parameter_of(timeline, id));

  Finding finding = finding_of(kUnusedParameters);
  finding.severity = harmful ? Severity::kError : Severity::kAdvice;
  finding.ranks = all_ranks(timeline);
  finding.first_step = found.step->number;
  finding.parameters = parameters_of(timeline, found.tensors);
  finding.evidence["parameters_unused"] = found.tensors.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.evidence["steps_unused"] = found.steps;
  finding.evidence["steps_seen"] = steps.size();
  for (const auto& [reason, parameters] : by_reason) {
    auto& names = finding.evidence["reasons"][reason];
    std::string advice;
    for (const auto& parameter : parameters) names.push_back(parameter.name);
    finding.message +=
        fmt::format("{}{} got no gradient on any rank: {}.", finding.message.empty() ? "" : " ",
                    list_of(parameters), sentence_for(reason));
    finding.prescription.text +=
        fmt::format("{}{}", finding.prescription.text.empty() ? "" : " ", cure_for(reason));
  }
  if (harmful) {
    finding.message +=
        " Their bucket never became ready, so no gradient of the step was averaged and the "
        "optimizer "
        "stepped on local ones; PyTorch says so only at the next forward.";
    // static_graph does not survive an output that forward returns and the loss leaves out
    // (pytorch#97030).
    if (by_reason.contains(kNotInLoss)) {
      finding.prescription.text += " If it must stay: find_unused_parameters=True.";
      finding.prescription.strategy = "ddp-find-unused";
    } else {
      finding.prescription.text +=
          " If it must stay: static_graph=True where the used set never changes, otherwise "
          "find_unused_parameters=True.";
      finding.prescription.strategy = "ddp-static-graph";
      finding.prescription.alternatives = {"ddp-find-unused"};
    }
  } else if (timeline.has_wrapper() && through_wrapper) {
    finding.message +=
        " The wrapper was told to expect this: training is right, the parameters only cost memory "
        "and traffic.";
  } else {
    finding.message +=
        " Nothing waits for their gradients here; under DistributedDataParallel's defaults this "
        "would fail.";
  }
  return std::vector{finding};
}

}  // namespace

const Rule kUnusedParameters = {"DDP201", "unused-parameters", Severity::kError,
                                "trainable parameters got no gradient on any rank", check};

}  // namespace ddp_doctor
