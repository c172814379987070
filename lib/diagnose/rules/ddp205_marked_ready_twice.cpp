// SPDX-License-Identifier: BSD-3-Clause
// DDP205: a parameter's hook fired twice in one iteration, and the reducer said so.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/errors.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// Or so says a line of the traceback; PyTorch's text itself speaks of "`checkpoint` functions" in
// any case.
bool checkpoints_reentrantly(const Timeline& timeline, const std::string& text) {
  return text.find("checkpoint.py") != std::string::npos || checkpoints_reentrantly(timeline);
}

Verdict check_marked_ready_twice(const Timeline& timeline) {
  Finding finding = finding_of(kMarkedReadyTwice);
  std::set<int> parameters;
  std::string text;
  for (int rank : all_ranks(timeline)) {
    const Event* error = timeline.error(rank);
    if (error == nullptr || error_kind(error->text) != "marked-twice") continue;
    finding.ranks.push_back(rank);
    finding.first_step = std::min(finding.first_step.value_or(error->step), error->step);
    if (const auto index = index_marked_twice(error->text)) {
      if (const auto id = parameter_at(timeline, *index)) parameters.insert(*id);
    }
    text = error->text;
  }
  if (finding.ranks.empty()) return std::vector<Finding>{};
  const bool reentrant = checkpoints_reentrantly(timeline, text);
  const bool finds = timeline.flag("find_unused_parameters");
  finding.where = where(timeline, "backward");
  finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["error"] = telling_line(text);
  finding.evidence["reentrant_checkpointing"] = reentrant;
  finding.evidence["find_unused_parameters"] = finds;
  finding.message = fmt::format(
      "The reducer was told twice in one iteration that {} is ready{}.",
      parameters.empty() ? "a parameter" : list_of(finding.parameters),
      reentrant && finds ? ": with find_unused_parameters=True it takes what reentrant checkpoints "
                           "hide for unused, "
                           "and then their own backward reports it again"
      : reentrant ? ": reentrant checkpoints run a backward of their own for it, more than once"
                  : ": several autograd passes reach it, as where a parameter is shared by parts "
                    "that are run backward separately");
  finding.prescription = {
      reentrant && finds ? "Drop find_unused_parameters=True, or use checkpoint(..., "
                           "use_reentrant=False); with parameters that are really unused, "
                           "static_graph=True."
      : reentrant        ? "Use checkpoint(..., use_reentrant=False), or static_graph=True."
                  : "Let one backward pass reach the parameter, or wrap with static_graph=True.",
      reentrant && finds ? "ddp" : "ddp-static-graph",
      {},
      {"allreduce-flat"}};
  return std::vector{finding};
}

}  // namespace

const Rule kMarkedReadyTwice = {"DDP205", "marked-ready-twice", Severity::kError,
                                "a parameter's hook fired twice in one iteration",
                                check_marked_ready_twice};

}  // namespace ddp_doctor
