// SPDX-License-Identifier: BSD-3-Clause
// DDP114: a replicated parameter's gradient was not reduced over one dimension of its mesh.
//
// True of every program with this bug: ranks that hold the same weight, and must go on doing so,
// give their optimizers different gradients for it, and the weights differ after the step. In a
// healthy program a gradient may still be Partial there, or the optimizer may reduce it itself: the
// weights are then the same after the step.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/placement/placement.h"
#include "lib/timeline/dimensions.h"

namespace ddp_doctor {
namespace {

// What each dimension did: whether the gradients are equal along it.
struct Reduced {
  std::vector<Dimension> over, not_over;
};

// Each group of `fine` is in one of `coarse`.
bool is_part_of(const Dimension& fine, const Dimension& coarse) {
  return std::all_of(fine.groups.begin(), fine.groups.end(), [&](const Ranks& group) {
    return std::any_of(coarse.groups.begin(), coarse.groups.end(), [&](const Ranks& whole) {
      return std::includes(whole.begin(), whole.end(), group.begin(), group.end());
    });
  });
}

std::vector<std::string> in_words(const std::vector<Dimension>& dimensions) {
  std::vector<std::string> words;
  for (const auto& dimension : dimensions) words.push_back(in_words(dimension));
  return words;
}

Reduced judge(const Timeline& timeline, const TimelineStep& step, int id) {
  Reduced reduced;
  std::map<int, std::size_t> part;  // by rank: its group of equal bits
  const auto alike = step.groups(id, Stage::kGradient, timeline.ranks());
  for (std::size_t i = 0; i < alike.size(); ++i) {
    for (const int rank : alike[i]) part[rank] = i;
  }
  const auto& replicas = timeline.replicas_of(id, Stage::kGradient);
  for (const auto& dimension : timeline.dimensions) {
    bool concerned = true;  // along it all hold replicas
    bool equal = true;
    for (const auto& group : dimension.groups) {
      concerned = concerned && std::any_of(replicas.begin(), replicas.end(), [&](const Ranks& r) {
                    return std::includes(r.begin(), r.end(), group.begin(), group.end());
                  });
      equal = equal && std::all_of(group.begin(), group.end(), [&](int rank) {
                return part.contains(rank) && part[rank] == part[group.front()];
              });
    }
    if (concerned) (equal ? reduced.over : reduced.not_over).push_back(dimension);
  }
  // A dimension that was flattened from others says nothing that these don't.
  const auto apart = reduced.not_over;
  std::erase_if(reduced.not_over, [&](const Dimension& one) {
    return std::any_of(apart.begin(), apart.end(), [&](const Dimension& other) {
      return other.groups != one.groups && is_part_of(other, one);
    });
  });
  return reduced;
}

// By PyTorch or the user.
bool is_said(const Timeline& timeline, int id) {
  const auto placed = timeline.placed().of.find(id);
  if (placed != timeline.placed().of.end())
    return placed->second.source != PlacementSource::kInferred;
  return timeline.layout.placements.contains(
      name_in_model(timeline.tensors[static_cast<std::size_t>(id)].name));
}

// Parameters of a job on a mesh whose replicas got different gradients, and differ since.
std::set<int> apart_in(const Timeline& timeline, const TimelineStep& step) {
  std::set<int> apart;
  const auto weights = differing(timeline, step, Stage::kWeight);
  for (const int id : differing(timeline, step, Stage::kGradient)) {
    const bool on_mesh =
        !timeline.layout.model_parallel.empty() || timeline.placed().of.contains(id);
    const bool both = std::find(weights.begin(), weights.end(), id) != weights.end();
    if (on_mesh && both) apart.insert(id);
  }
  return apart;
}

Verdict check_not_reduced_over_dimension(const Timeline& timeline) {
  if (!timeline.on_mesh()) return std::vector<Finding>{};
  if (averages_weights(timeline)) return Undecidable{kAveragesWeights};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kNotReducedOverDimension);
  std::set<int> parameters;
  std::size_t affected = 0;
  const TimelineStep* first = nullptr;
  for (const auto* step : steps) {
    const auto apart = apart_in(timeline, *step);
    if (apart.empty()) continue;
    ++affected;
    parameters.insert(apart.begin(), apart.end());
    if (first == nullptr) first = step;
  }
  if (first == nullptr) return std::vector<Finding>{};
  const int one = *apart_in(timeline, *first).begin();
  const Reduced reduced = judge(timeline, *first, one);
  const auto over = in_words(reduced.over);
  const auto not_over = in_words(reduced.not_over);
  finding.where = where(timeline, "step");
  finding.ranks = timeline.ranks();
  finding.first_step = first->number;
  finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["parameters_apart"] = parameters.size();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["not_reduced_over"] = not_over;
  finding.evidence["reduced_over"] = over;
  const bool certain = std::all_of(parameters.begin(), parameters.end(),
                                   [&](int id) { return is_said(timeline, id); });
  if (!certain) finding.certainty = Certainty::kLikely;
  const auto& replicas = timeline.replicas_of(one, Stage::kGradient);
  const auto list = [](const std::vector<std::string>& texts) {
    std::string text;
    for (const auto& each : texts) text += (text.empty() ? "" : " and ") + each;
    return text;
  };
  finding.message = fmt::format(
      "{}: the ranks {} hold the same weight{}, but their gradients differ at optimizer.step in {} "
      "of {}, and so do the weights since: {}{}.",
      list_of(finding.parameters), in_braces(replicas), parameters.size() == 1 ? "" : "s", affected,
      count_of(steps.size(), "step"),
      not_over.empty() ? "they were not reduced over all of these ranks"
                       : "they were never reduced over " + list(not_over),
      over.empty() ? "" : ", only over " + list(over));
  finding.prescription = {
      "All-reduce these gradients over the ranks that hold the same weight, after backward and "
      "before clipping and optimizer.step: a sum where each rank has a share of the gradient "
      "(tensor, "
      "sequence, context and expert parallel), a mean where each rank has its own data.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kNotReducedOverDimension = {
    .code = "DDP114",
    .name = "not-reduced-over-dimension",
    .severity = Severity::kError,
    .headline = "a gradient was not reduced over one dimension of the mesh",
    .check = check_not_reduced_over_dimension,
    .needs = {.ranks = 2, .steps = 1},
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWrongProcessGroup}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
