// SPDX-License-Identifier: BSD-3-Clause
// DDP116: activations are gathered from all ranks, each rank computes a loss of its own from them,
// and no gradient goes back to the ranks that they are from.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kGathered = 3;  // steps

// The ranks of a group have losses that are not the same: each has its own. Nothing if a loss is
// not known.
std::optional<bool> losses_differ(const TimelineStep& step, const std::vector<int>& group) {
  std::set<double> losses;
  for (const int rank : group) {
    const auto* record = step.at(rank);
    if (record == nullptr || !record->loss) return {};
    losses.insert(*record->loss);
  }
  return losses.size() > 1;
}

bool is_gather(const Collective& call, const Site& site) {
  return call.op.starts_with("all_gather") && call.file == site.file && call.line == site.line;
}

// Gradients of activations come back through it.
bool returns_gradient(const Collective& call) {
  return call.moment == "backward" && call.target.empty() && call.numel > 1;
}

// They come back through what PyTorch itself issues, as torch.distributed.nn's functions do.
bool pytorch_returns_gradients(const Timeline& timeline) {
  return std::ranges::any_of(timeline.ranks(), [&](int rank) {
    return timeline.fact(rank, "activations", "backward") != nullptr;
  });
}

Verdict check_gather_without_gradient(const Timeline& timeline) {
  const Site* site = timeline.site("gather");
  const Fact* how = timeline.fact(timeline.first_rank(), "gather", "gradient");
  if (site == nullptr || how == nullptr || pytorch_returns_gradients(timeline))
    return std::vector<Finding>{};
  std::size_t apart = 0;
  std::optional<std::int64_t> first;
  for (const auto* step : complete_steps(timeline)) {
    const auto& calls = step->first()->calls;
    if (std::ranges::any_of(calls, returns_gradient)) return std::vector<Finding>{};
    const auto gather =
        std::ranges::find_if(calls, [&](const Collective& call) { return is_gather(call, *site); });
    if (gather == calls.end()) continue;
    const auto differ = losses_differ(*step, members_of(timeline, gather->group));
    if (!differ) continue;
    if (!*differ) return std::vector<Finding>{};
    if (!first) first = step->number;
    ++apart;
  }
  if (apart < kGathered) return std::vector<Finding>{};
  Finding finding = finding_of(kGatherWithoutGradient);
  finding.certainty = Certainty::kLikely;
  finding.ranks = timeline.ranks();
  finding.first_step = first;
  finding.where = where(timeline, "gather");
  finding.evidence["steps"] = apart;
  finding.evidence["how"] = nlohmann::json::parse(how->value);
  const bool in_function = finding.evidence["how"] == "function";
  finding.message = fmt::format(
      "In {} ranks gathered activations of each other, and each computed a loss of its own from "
      "them; but {}. So what the other ranks' losses say about a rank's activations is missing "
      "from "
      "its gradients: they are not those of one process with the whole batch.",
      count_of(apart, "step"),
      in_function ? "the backward of the function that gathers exchanges nothing"
                  : "all_gather returns tensors outside of the graph");
  finding.prescription = {
      in_function
          ? "In the function's backward, sum the gradient over the ranks (all_reduce) before "
            "taking this rank's part of it. `ddp-doctor parity` shows whether the gradients "
            "are those of one process."
          : "Gather with torch.distributed.nn.functional.all_gather, through which gradients "
            "go back, unless the other ranks' activations are meant to be constants. "
            "`ddp-doctor parity` shows whether the gradients are those of one process.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kGatherWithoutGradient = {
    .code = "DDP116",
    .name = "gather-without-gradient",
    .severity = Severity::kWarning,
    .headline = "no gradient goes back through a gather of activations",
    .check = check_gather_without_gradient,
    .scope = Scope::kJob,
    .needs = {.ranks = 2, .steps = kGathered},
    .on_mesh = OnMesh::kNotChecked};

}  // namespace ddp_doctor
