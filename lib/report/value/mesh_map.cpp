// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/mesh_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/rank_set.h"

namespace ddp_doctor {
namespace {

constexpr char kReplicate[] = "Replicate";

// What replica groups say of one dimension: those of it hold the same, or each rank another part.
std::string kind_along(const Dimension& dimension, const std::vector<Ranks>& replicas) {
  std::map<int, std::size_t> home;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    for (const int rank : replicas[i]) home[rank] = i;
  }
  const bool replicated =
      std::all_of(dimension.groups.begin(), dimension.groups.end(), [&](const Ranks& group) {
        return std::all_of(group.begin(), group.end(),
                           [&](int rank) { return home[rank] == home[group.front()]; });
      });
  return replicated ? kReplicate : "Shard";
}

// As declared, where the dimension is one of that placement's mesh.
std::string kind_along(const Dimension& dimension, const Placement& declared,
                       const std::vector<Ranks>& replicas) {
  const auto& mesh = declared.mesh;
  for (std::size_t i = 0; i < std::min(declared.kinds.size(), mesh.shape.size()); ++i) {
    const auto along = mesh.along(i);
    const bool same = std::all_of(along.begin(), along.end(), [&](const Ranks& group) {
      return std::find(dimension.groups.begin(), dimension.groups.end(), group) !=
             dimension.groups.end();
    });
    if (same) return declared.kinds[i];
  }
  return kind_along(dimension, replicas);
}

std::string source_of(const ReplicaGroups::Of* placed, const Placement* declared) {
  if (placed != nullptr && placed->source == PlacementSource::kStated) return "stated";
  const bool inferred = placed != nullptr && placed->source == PlacementSource::kInferred;
  if (declared != nullptr) return declared->source + (inferred ? ", replicas inferred" : "");
  if (inferred) return "inferred";
  return placed != nullptr ? "DistributedDataParallel" : "";
}

}  // namespace

MeshMap mesh_map_of(const Timeline& timeline) {
  MeshMap map;
  if (!timeline.on_mesh()) return map;
  map.dimensions = timeline.dimensions;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter") continue;
    const auto placed = timeline.placed().of.find(tensor.id);
    const auto declared = timeline.layout.placements.find(tensor.name);
    const auto* groups = placed == timeline.placed().of.end() ? nullptr : &placed->second;
    const auto* said = declared == timeline.layout.placements.end()
                           ? nullptr
                           : &declared->second.front().placement;
    PlacedAlike one{{},
                    source_of(groups, said),
                    timeline.replicas_of(tensor.id, Stage::kWeight),
                    {tensor.name}};
    if (one.source.empty()) one.source = tensor.ddp_index ? "DistributedDataParallel" : "inferred";
    const bool stated = groups != nullptr && groups->source == PlacementSource::kStated;
    for (const auto& dimension : map.dimensions)
      one.along.push_back(said != nullptr && !stated ? kind_along(dimension, *said, one.replicas)
                                                     : kind_along(dimension, one.replicas));
    const auto known =
        std::find_if(map.placements.begin(), map.placements.end(), [&](const auto& other) {
          return other.along == one.along && other.source == one.source &&
                 other.replicas == one.replicas;
        });
    if (known == map.placements.end()) {
      map.placements.push_back(std::move(one));
    } else {
      known->parameters.push_back(tensor.name);
    }
  }
  std::stable_sort(map.placements.begin(), map.placements.end(), [](const auto& a, const auto& b) {
    return a.parameters.size() > b.parameters.size();
  });
  return map;
}

std::string some_groups(const std::vector<Ranks>& groups) {
  constexpr std::size_t kAll = 4;  // so many are shown, of more than that two
  const std::size_t shown = groups.size() <= kAll ? groups.size() : 2;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    const bool few = groups[i].size() <= kAll;
    text += fmt::format(
        "{}{{{}}}", i == 0 ? "" : ", ",
        few ? fmt::format("{}", fmt::join(groups[i], ", ")) : RankSet(groups[i]).text());
  }
  if (groups.size() > shown) text += fmt::format(", ... ({} groups)", groups.size());
  return text;
}

std::string name_of(const MeshMap& map, std::size_t dimension) {
  const auto& name = map.dimensions[dimension].name;
  return name.empty() ? fmt::format("dimension {}", dimension) : name;
}

std::vector<std::size_t> MeshMap::replicated_along() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < dimensions.size() && dimensions.size() > 1; ++i) {
    if (std::any_of(placements.begin(), placements.end(),
                    [&](const auto& placed) { return placed.along[i] == kReplicate; }))
      found.push_back(i);
  }
  return found;
}

}  // namespace ddp_doctor
