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

namespace ddp_doctor {
namespace {

// Ranks as one dimension of a mesh has them together.
struct Dimension {
  std::string name;  // empty: nobody named it
  std::vector<Ranks> groups;
};

std::string in_words(const Dimension& dimension) {
  return (dimension.name.empty() ? "" : dimension.name + " ") + in_braces(dimension.groups);
}

// The ranks of a call's group, "0,2".
Ranks ranks_in(const std::string& group) {
  Ranks ranks;
  for (std::size_t at = 0; at < group.size(); at = group.find(',', at) + 1) {
    ranks.push_back(std::stoi(group.substr(at)));
    if (group.find(',', at) == std::string::npos) break;
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Those of the meshes that parameters lie on, and of the process groups that the program uses.
std::vector<Dimension> dimensions_of(const Timeline& timeline) {
  std::vector<Dimension> dimensions;
  const auto add = [&](Dimension dimension) {
    const bool trivial =
        dimension.groups.size() < 2 && dimension.groups.front().size() == timeline.ranks().size();
    const auto known = std::find_if(dimensions.begin(), dimensions.end(), [&](const auto& one) {
      return one.groups == dimension.groups;
    });
    if (trivial || !is_partition(dimension.groups, timeline.ranks())) return;
    if (known == dimensions.end()) dimensions.push_back(std::move(dimension));
  };
  for (const auto& [name, all] : timeline.layout.placements) {
    for (const auto& [placement, by] : all) {
      const auto& mesh = placement.mesh;
      for (std::size_t i = 0; i < mesh.shape.size(); ++i)
        add({mesh.names.empty() ? "" : mesh.name_of(i), mesh.along(i)});
    }
  }
  std::vector<std::set<Ranks>> partitions;  // groups that do not overlap
  const auto fits = [](const std::set<Ranks>& groups, const Ranks& ranks) {
    return std::none_of(groups.begin(), groups.end(), [&](const Ranks& other) {
      return other != ranks && std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
               return std::binary_search(other.begin(), other.end(), rank);
             });
    });
  };
  std::set<std::string> groups;
  for (const auto& step : timeline.steps) {
    for (const auto* record : step.records()) {
      for (const auto& call : record->calls) groups.insert(call.group);
    }
  }
  groups.erase("");  // all ranks
  for (const auto& group : groups) {
    const Ranks ranks = ranks_in(group);
    auto home = std::find_if(partitions.begin(), partitions.end(),
                             [&](const auto& partition) { return fits(partition, ranks); });
    if (home == partitions.end()) home = partitions.insert(partitions.end(), std::set<Ranks>{});
    home->insert(ranks);
  }
  for (const auto& partition : partitions) add({"", {partition.begin(), partition.end()}});
  return dimensions;
}

// What each dimension did: whether the gradients are equal along it.
struct Reduced {
  std::vector<std::string> over, not_over;
};

Reduced judge(const Timeline& timeline, const TimelineStep& step, int id,
              const std::vector<Dimension>& dimensions) {
  Reduced reduced;
  std::map<int, std::size_t> part;  // by rank: its group of equal bits
  const auto alike = step.groups(id, Stage::kGradient, timeline.ranks());
  for (std::size_t i = 0; i < alike.size(); ++i) {
    for (const int rank : alike[i]) part[rank] = i;
  }
  const auto& replicas = timeline.replicas_of(id, Stage::kGradient);
  for (const auto& dimension : dimensions) {
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
    if (concerned) (equal ? reduced.over : reduced.not_over).push_back(in_words(dimension));
  }
  return reduced;
}

bool is_declared(const Timeline& timeline, int id) {
  const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
  const auto placed = timeline.placed().of.find(id);
  return timeline.layout.placements.contains(name_in_model(tensor.name)) &&
         (placed == timeline.placed().of.end() || !placed->second.inferred);
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
  const auto [over, not_over] = judge(timeline, *first, one, dimensions_of(timeline));
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
                                   [&](int id) { return is_declared(timeline, id); });
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
