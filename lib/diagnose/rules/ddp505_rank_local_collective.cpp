// SPDX-License-Identifier: BSD-3-Clause
// DDP505: one rank alone entered a collective, as in a validation forward of the wrapper on rank 0.

#include <fmt/format.h>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict check_rank_local_collective(const Timeline& timeline) {
  const auto divergence = divergence_of(timeline);
  if (!divergence || divergence->reason != Reason::kLocal) return std::vector<Finding>{};
  Finding finding = finding_of(kRankLocalCollective, timeline, *divergence);
  const LoggedCall& call = *divergence->at.at(finding.ranks.front());
  const bool forward = call.op == "ddp.forward";
  const std::string waiting = waiting_in(*divergence);
  finding.message =
      fmt::format("{} alone entered {}, which {}waits for all ranks{}.", ranks_of(finding.ranks),
                  name_of(call), forward ? "broadcasts buffers (BatchNorm statistics) and " : "",
                  waiting.empty() ? "" : "; " + waiting);
  finding.message[0] = 'R';  // "Rank 1 ...", "Ranks 0 and 1 ..."
  finding.prescription =
      forward ? Prescription{"Call the inner module (model.module(x)) if only some ranks evaluate, or evaluate on every rank.",
                             ""}
              : Prescription{"Move this call out of the condition on the rank: every rank of the group must issue it.",
                             ""};
  return std::vector{finding};
}

}  // namespace

const Rule kRankLocalCollective = {.code = "DDP505",
                                   .name = "rank-local-collective",
                                   .severity = Severity::kError,
                                   .headline = "one rank alone entered a collective",
                                   .check = check_rank_local_collective,
                                   .scope = Scope::kJob,
                                   .needs = {.ranks = 2},
                                   .on_mesh = OnMesh::kHolds,
                                   .explains = {{.rule = &kRankCrashed, .except = "left"}}};

}  // namespace ddp_doctor
