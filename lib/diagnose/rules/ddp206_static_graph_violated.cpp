// DDP206: static_graph=True promises that the used set never changes; it did, or the reducer says
// so.

#include <fmt/format.h>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

bool reducer_objects(const Event& error) {
  return error.text.find("static_graph") != std::string::npos &&
         error.text.find("training graph has changed") != std::string::npos;
}

Verdict check(const Timeline& timeline) {
  if (!timeline.has_wrapper() || !timeline.flag("static_graph")) return std::vector<Finding>{};
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{"no step was completed by every rank"};

  Finding finding = finding_of(kStaticGraphViolated);
  std::set<int> changed;
  std::set<int> ranks;
  for (int rank : all_ranks(timeline)) {
    const auto first = unused(timeline, *steps.front(), rank);
    for (const auto* step : steps) {
      std::set<int> now = unused(timeline, *step, rank);
      if (now == first) continue;
      for (int id : timeline.trainable()) {
        if (now.contains(id) != first.contains(id)) changed.insert(id);
      }
      ranks.insert(rank);
      if (!finding.first_step || step->number < *finding.first_step)
        finding.first_step = step->number;
    }
    const Event* error = timeline.error(rank);
    if (error != nullptr && reducer_objects(*error)) {
      ranks.insert(rank);
      finding.evidence["error"] = error->text.substr(0, error->text.find('\n'));
      if (!finding.first_step) finding.first_step = error->step;
    }
  }
  if (ranks.empty()) return std::vector<Finding>{};
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.parameters = parameters_of(timeline, changed);
  finding.evidence["steps_seen"] = steps.size();
  finding.message =
      changed.empty()
          ? "static_graph=True, but the reducer found that the graph differs from that of the "
            "first "
            "iteration (an output of forward that is not in the loss has this effect too)."
          : fmt::format("static_graph=True, but the use of {} differs from that in the first step.",
                        list_of(finding.parameters));
  finding.prescription = {
      "Drop static_graph=True and use find_unused_parameters=True, or make every step use the same "
      "parameters.",
      "ddp-find-unused"};
  return std::vector{finding};
}

}  // namespace

const Rule kStaticGraphViolated = {"DDP206", "static-graph-violated", Severity::kError,
                                   "static_graph=True, but the graph changed", check};

}  // namespace ddp_doctor
