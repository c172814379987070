// SPDX-License-Identifier: BSD-3-Clause
// DDP205: a parameter's hook fired twice in one iteration, and the reducer raised.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/errors.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// Also decided by a line of the traceback. PyTorch's own text mentions "`checkpoint` functions" in
// every case, so it proves nothing.
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
      "The reducer marked {} as ready twice in one iteration{}.",
      parameters.empty() ? "a parameter" : list_of(finding.parameters),
      reentrant && finds
          ? ": find_unused_parameters=True treats parameters inside reentrant checkpoints as "
            "unused and marks them, then the checkpoint's own backward marks them again"
      : reentrant ? ": reentrant checkpoints run a separate backward for it, more than once"
                  : ": several backward passes reach it, for example because two parts of the "
                    "model share it and each runs its own backward");
  finding.prescription = {
      reentrant && finds
          ? "Remove find_unused_parameters=True, or use checkpoint(..., use_reentrant=False). If "
            "some parameters really are unused, use static_graph=True."
      : reentrant ? "Use checkpoint(..., use_reentrant=False), or static_graph=True."
                  : "Use the parameter in one backward pass only, or wrap with static_graph=True.",
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
