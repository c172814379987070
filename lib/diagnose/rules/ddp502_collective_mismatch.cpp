// SPDX-License-Identifier: BSD-3-Clause
// DDP502: ranks are in different collectives, or in the same one with different shapes.

#include <fmt/format.h>

#include <set>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict check_collective_mismatch(const Timeline& timeline) {
  const auto divergence = divergence_of(timeline);
  if (!divergence || divergence->reason != Reason::kMismatch) return std::vector<Finding>{};
  Finding finding = finding_of(kCollectiveMismatch, timeline, *divergence);
  std::string calls;
  std::set<std::string> names;
  for (const auto& [rank, call] : divergence->at) names.insert(name_of(*call));
  const bool other_steps = names.size() == 1;  // the same call, which some ranks are further with
  for (const auto& [rank, call] : divergence->at) {
    calls += fmt::format("{}rank {}: {}", calls.empty() ? "" : "; ", rank,
                         other_steps ? fmt::format("in step {}", call->step) : name_of(*call));
  }
  const std::string cause = divergence->cause.empty() ? "" : " (" + divergence->cause + ")";
  finding.message =
      other_steps
          ? fmt::format("Ranks reach {} in different steps: {}{}.", *names.begin(), calls, cause)
          : fmt::format("Ranks are in different collectives in step {}: {}{}.", *finding.first_step,
                        calls, cause);
  finding.prescription = {
      "Issue the same collectives, with the same sizes and in the same order, on every rank. "
      "Remove conditions and loop counts that depend on the rank or its data, or make all ranks "
      "agree on them first (all_reduce a flag).",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kCollectiveMismatch = {.code = "DDP502",
                                  .name = "collective-mismatch",
                                  .severity = Severity::kError,
                                  .headline = "ranks are in different collectives",
                                  .check = check_collective_mismatch,
                                  .scope = Scope::kJob,
                                  .needs = {.ranks = 2},
                                  .on_mesh = OnMesh::kHolds,
                                  .explains = {{.rule = &kRankCrashed, .except = "left"}}};

}  // namespace ddp_doctor
