// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/dimensions.h"

#include <algorithm>
#include <set>
#include <string>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {
namespace {

// The process groups that the program uses, those together that do not overlap.
std::vector<std::set<Ranks>> process_groups(const Timeline& timeline) {
  std::set<std::string> groups;
  for (const auto& step : timeline.steps) {
    for (const auto* record : step.records()) {
      for (const auto& call : record->calls) groups.insert(call.group);
    }
  }
  groups.erase("");  // all ranks
  const auto overlap = [](const Ranks& a, const Ranks& b) {
    return std::any_of(a.begin(), a.end(),
                       [&](int rank) { return std::binary_search(b.begin(), b.end(), rank); });
  };
  std::vector<std::set<Ranks>> partitions;
  for (const auto& group : groups) {
    Ranks ranks = ranks_in(group);
    std::sort(ranks.begin(), ranks.end());
    auto home = std::find_if(partitions.begin(), partitions.end(), [&](const auto& partition) {
      return std::none_of(partition.begin(), partition.end(), [&](const Ranks& other) {
        return other != ranks && overlap(other, ranks);
      });
    });
    if (home == partitions.end()) home = partitions.insert(partitions.end(), std::set<Ranks>{});
    home->insert(ranks);
  }
  return partitions;
}

}  // namespace

std::vector<Dimension> dimensions_of(const Timeline& timeline) {
  std::vector<Dimension> dimensions;
  const auto add = [&](Dimension dimension) {
    const auto& groups = dimension.groups;
    const bool apart = std::all_of(groups.begin(), groups.end(),
                                   [](const Ranks& group) { return group.size() == 1; });
    const bool known = std::any_of(dimensions.begin(), dimensions.end(),
                                   [&](const auto& one) { return one.groups == groups; });
    if (known || apart || !is_partition(groups, timeline.ranks())) return;
    if (groups.size() == 1 && dimension.name.empty()) return;
    dimensions.push_back(std::move(dimension));
  };
  for (const auto& dimension : timeline.layout.dimensions) add(dimension);
  for (const auto& [name, all] : timeline.layout.placements) {
    for (const auto& [placement, by] : all) {
      for (std::size_t i = 0; i < placement.mesh.shape.size(); ++i)
        add({"", placement.mesh.along(i)});
    }
  }
  for (const auto& [name, all] : timeline.layout.stated) {
    for (const auto& along : all) add(along.dimension);
  }
  for (const auto& groups : process_groups(timeline)) add({"", {groups.begin(), groups.end()}});
  return dimensions;
}

std::string in_words(const Dimension& dimension) {
  return (dimension.name.empty() ? "" : dimension.name + " ") + in_braces(dimension.groups);
}

}  // namespace ddp_doctor
