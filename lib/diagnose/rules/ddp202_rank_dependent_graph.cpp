// DDP202: in one step a parameter is used on some ranks and not on others.

#include <fmt/format.h>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// find_unused_parameters averages zeros from the ranks without a gradient, so does a hand-written
// all-reduce that fills them in: wherever gradients agree and nobody died, the difference in graphs
// did no harm.
bool did_harm(const Timeline& timeline, const TimelineStep& step) {
  if (!differing(timeline, step, Stage::kGradient).empty()) return true;
  for (int rank : all_ranks(timeline)) {
    if (timeline.error(rank) != nullptr) return true;
  }
  return false;
}

Verdict check(const Timeline& timeline) {
  if (timeline.run.world_size < 2) return Undecidable{"there is only one rank, nothing to compare"};
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return Undecidable{"no step was completed by every rank"};

  Finding finding = finding_of(kRankDependentGraph);
  std::set<int> parameters;
  std::size_t dependent = 0;
  for (const auto* step : steps) {
    std::set<int> somewhere;
    for (int rank : all_ranks(timeline)) somewhere.merge(unused(timeline, *step, rank));
    const auto everywhere = unused_on_every_rank(timeline, *step);
    std::erase_if(somewhere, [&](int id) { return everywhere.contains(id); });
    if (somewhere.empty() || !did_harm(timeline, *step)) continue;
    ++dependent;
    parameters.insert(somewhere.begin(), somewhere.end());
    if (finding.first_step) continue;
    finding.first_step = step->number;
    for (int rank : all_ranks(timeline)) {
      auto& names = finding.evidence["unused_by_rank"][std::to_string(rank)];
      names = nlohmann::ordered_json::array();
      for (int id : unused(timeline, *step, rank)) names.push_back(parameter_of(timeline, id).name);
    }
  }
  if (dependent == 0) return std::vector<Finding>{};
  finding.ranks = all_ranks(timeline);
  finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["steps_dependent"] = dependent;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "{} got a gradient on some ranks and not on others in the same step ({} of {}): the "
      "path through the model depends on the rank or on its data.",
      list_of(finding.parameters), dependent, count_of(steps.size(), "step"));
  finding.prescription = {
      "Let every rank take the same path, or wrap with find_unused_parameters=True: the ranks "
      "without a gradient then contribute zeros to the mean.",
      "ddp-find-unused"};
  return std::vector{finding};
}

}  // namespace

const Rule kRankDependentGraph = {"DDP202", "rank-dependent-graph", Severity::kError,
                                  "a parameter is used on some ranks and not on others", check};

}  // namespace ddp_doctor
