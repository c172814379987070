// DDP111: ranks issue different hand-written collectives for their gradients, as in
// `if p.grad is not None: all_reduce(p.grad)`.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/divergence.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

using Calls = std::map<std::string, std::int64_t>;  // a kind of call, and how often

// What a rank synchronized of its gradients between backward and step. Single numbers are losses
// and metrics.
Calls gradient_calls(const TimelineStep& step, int rank, bool wrapped) {
  Calls calls;
  for (const auto* call : calls_before_step(step, rank)) {
    const bool on_one = call->target.starts_with("gradient");
    if (!on_one && (wrapped || call->numel < 2)) continue;
    const std::string what = on_one ? call->target : fmt::format("{} elements", call->numel);
    calls[call->op + " of " + what] += call->count;
  }
  return calls;
}

const Collective* first_gradient_call(const TimelineStep& step) {
  for (int rank = 0; rank < static_cast<int>(step.ranks.size()); ++rank) {
    const auto calls = calls_before_step(step, rank);
    if (!calls.empty()) return calls.front();
  }
  return nullptr;
}

Prescription cure() {
  return {
      "Let every rank issue the same collectives in the same order: go over all parameters, and "
      "where "
      "a gradient is missing reduce zeros (p.grad = torch.zeros_like(p)).",
      ""};
}

// The calls that not every rank issued alike.
std::set<std::string> not_everywhere(const std::map<int, Calls>& by_rank) {
  std::set<std::string> names;
  for (const auto& [rank, calls] : by_rank) {
    for (const auto& [name, count] : calls) {
      const bool everywhere = std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& other) {
        const auto found = other.second.find(name);
        return found != other.second.end() && found->second == count;
      });
      if (!everywhere) names.insert(name);
    }
  }
  return names;
}

// In a step that every rank came through.
std::optional<Finding> in_a_complete_step(const Timeline& timeline) {
  for (const auto* step : complete_steps(timeline)) {
    std::map<int, Calls> by_rank;
    for (int rank : all_ranks(timeline))
      by_rank[rank] = gradient_calls(*step, rank, timeline.has_wrapper());
    const auto different = not_everywhere(by_rank);
    if (different.empty()) continue;
    Finding finding = finding_of(kRankDependentManualSync);
    finding.first_step = step->number;
    std::size_t most = 0;
    for (const auto& [rank, calls] : by_rank) most = std::max(most, calls.size());
    for (const auto& [rank, calls] : by_rank) {
      if (calls.size() < most) finding.ranks.push_back(rank);
      auto& list = finding.evidence["calls"][std::to_string(rank)] =
          nlohmann::ordered_json::array();
      for (const auto& [name, count] : calls) list.push_back(name);
    }
    if (finding.ranks.empty()) finding.ranks = all_ranks(timeline);
    for (int id : timeline.trainable()) {
      const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
      if (std::any_of(different.begin(), different.end(),
                      [&](const auto& call) { return call.ends_with(" of gradient of " + name); }))
        finding.parameters.push_back(parameter_of(timeline, id));
    }
    if (const auto* call = first_gradient_call(*step))
      finding.where = Where{call->file, call->line};
    finding.message = fmt::format(
        "Ranks issued different hand-written collectives for their gradients in step {}: {}.",
        step->number,
        finding.parameters.empty() ? "their number or sizes differ"
                                   : "not all of them synchronized " + list_of(finding.parameters));
    finding.prescription = cure();
    return finding;
  }
  return {};
}

Verdict check(const Timeline& timeline) {
  if (timeline.run.world_size < 2) return Undecidable{"there is only one rank, nothing to compare"};
  const auto divergence = divergence_of(timeline);
  const bool hangs = divergence && divergence->reason == Reason::kManualSync;
  if (auto finding = in_a_complete_step(timeline);
      finding && (!hangs || *finding->first_step < divergence->step))
    return std::vector{*finding};
  if (!hangs) return std::vector<Finding>{};

  Finding finding = finding_of(kRankDependentManualSync, timeline, *divergence);
  for (int id : timeline.trainable()) {
    const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
    if (std::count(divergence->parameters.begin(), divergence->parameters.end(), name) > 0)
      finding.parameters.push_back(parameter_of(timeline, id));
  }
  finding.message = fmt::format(
      "Ranks issue different hand-written collectives for their gradients, and wait for each other "
      "in "
      "step {}: {}{}.",
      *finding.first_step, waiting_in(*divergence),
      finding.parameters.empty()
          ? ""
          : fmt::format("; {} did not synchronize {}", ranks_of(finding.ranks),
                        list_of(finding.parameters)));
  finding.prescription = cure();
  return std::vector{finding};
}

}  // namespace

const Rule kRankDependentManualSync = {
    "DDP111", "rank-dependent-manual-sync", Severity::kError,
    "ranks issue different hand-written collectives for their gradients", check};

}  // namespace ddp_doctor
