// SPDX-License-Identifier: BSD-3-Clause
#include "lib/placement/infer.h"

#include <algorithm>
#include <set>

namespace ddp_doctor {
namespace {

// The ranks that share a group in both.
std::vector<Ranks> meet(const std::vector<Ranks>& a, const std::vector<Ranks>& b) {
  std::vector<Ranks> groups;
  for (const auto& one : a) {
    for (const auto& other : b) {
      Ranks both;
      std::set_intersection(one.begin(), one.end(), other.begin(), other.end(),
                            std::back_inserter(both));
      if (!both.empty()) groups.push_back(std::move(both));
    }
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

using Sizes = std::set<std::int64_t>;

// The sizes that every one of these has; nothing if they are all of one shape.
Sizes common_sizes(const std::set<Sizes>& shapes) {
  Sizes common;
  if (shapes.size() < 2) return common;
  for (const auto size : *shapes.begin()) {
    if (std::all_of(shapes.begin(), shapes.end(),
                    [&](const Sizes& shape) { return shape.contains(size); }))
      common.insert(size);
  }
  return common;
}

struct Cuts {
  Sizes whole;  // that whole tensors have, or all shards
  std::map<std::int64_t, std::vector<Ranks>>
      at;                         // by size: who holds the same of what is cut there
  std::set<std::string> modules;  // with a shard that is known to be cut
};

// `split`: by module, of those that are shards.
Cuts cuts_of(const std::vector<Undeclared>& tensors,
             const std::map<std::string, std::vector<Ranks>>& split) {
  Cuts cuts;
  std::set<Sizes> shards;
  for (const auto& tensor : tensors) {
    if (tensor.constant) continue;
    const Sizes sizes(tensor.sizes.begin(), tensor.sizes.end());
    if (tensor.alike.size() > 1) {
      shards.insert(sizes);
    } else if (!split.contains(tensor.module)) {
      cuts.whole.insert(sizes.begin(), sizes.end());
    }
  }
  cuts.whole.merge(common_sizes(shards));
  for (const auto& tensor : tensors) {
    const auto is_whole = [&](std::int64_t size) { return cuts.whole.contains(size); };
    const auto& sizes = tensor.sizes;
    if (tensor.alike.size() < 2 || tensor.constant) continue;
    // Without one that is known to be whole, any may be the one that is cut.
    if (sizes.size() > 1 && std::none_of(sizes.begin(), sizes.end(), is_whole)) continue;
    for (const auto size : sizes) {
      if (is_whole(size)) continue;
      auto& groups = cuts.at[size];
      groups = groups.empty() ? tensor.alike : meet(groups, tensor.alike);
      if (sizes.size() > 1) cuts.modules.insert(tensor.module);
    }
  }
  return cuts;
}

// It begins alike, has whole sizes only, and is beside a shard that is cut elsewhere, such as the
// bias of a layer whose inputs are split.
bool is_whole(const Undeclared& tensor, const Cuts& cuts) {
  return (tensor.constant || tensor.alike.size() == 1) && cuts.modules.contains(tensor.module) &&
         std::all_of(tensor.sizes.begin(), tensor.sizes.end(),
                     [&](std::int64_t size) { return cuts.whole.contains(size); });
}

}  // namespace

std::vector<std::vector<Ranks>> infer_replicas(const std::vector<Undeclared>& tensors) {
  std::map<std::string, std::vector<Ranks>> shards;
  for (const auto& tensor : tensors) {
    if (tensor.alike.size() < 2) continue;
    auto& groups = shards[tensor.module];
    groups = groups.empty() ? tensor.alike : meet(groups, tensor.alike);
  }
  const auto cuts = cuts_of(tensors, shards);
  std::vector<std::vector<Ranks>> replicas;
  for (const auto& tensor : tensors) {
    auto& groups = replicas.emplace_back();
    if (is_whole(tensor, cuts)) continue;
    const auto shard = shards.find(tensor.module);
    if (shard != shards.end()) groups = shard->second;
    for (const auto size : tensor.constant ? tensor.sizes : std::vector<std::int64_t>{}) {
      const auto along = cuts.at.find(size);
      if (groups.empty() && along != cuts.at.end()) groups = along->second;
    }
  }
  return replicas;
}

namespace {

std::vector<Ranks> alone(const std::vector<Ranks>& groups) {
  std::vector<Ranks> each;
  for (const auto& ranks : groups) {
    for (const int rank : ranks) each.push_back({rank});
  }
  std::sort(each.begin(), each.end());
  return each;
}

// Stages that lack a tensor have a group each: they are one group where others share theirs.
std::vector<Ranks> with_those_that_lack_it(const std::vector<Ranks>& alike) {
  std::vector<Ranks> groups;
  Ranks alone;
  for (const auto& ranks : alike) {
    if (ranks.size() > 1) {
      groups.push_back(ranks);
    } else {
      alone.insert(alone.end(), ranks.begin(), ranks.end());
    }
  }
  if (groups.empty()) return alike;
  if (!alone.empty()) groups.push_back(alone);
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace

std::vector<std::vector<Ranks>> infer_in_stages(const std::vector<Undeclared>& tensors,
                                                bool certain_stages) {
  const bool one_seed = std::none_of(tensors.begin(), tensors.end(), [](const Undeclared& tensor) {
    return !tensor.constant && tensor.apart;
  });
  std::vector<Ranks> stages;
  for (const auto& tensor : tensors) {
    if (tensor.constant || tensor.alike.size() < 2) continue;
    const auto together = with_those_that_lack_it(tensor.alike);
    stages = stages.empty() ? together : meet(stages, together);
  }
  std::vector<std::vector<Ranks>> replicas;
  for (const auto& tensor : tensors) {
    if (stages.empty() && certain_stages) {
      replicas.push_back(alone(tensor.alike));
    } else {
      const bool of_stage = (tensor.constant || (one_seed && !tensor.embedding)) && !stages.empty();
      replicas.push_back(of_stage ? meet(stages, tensor.alike) : tensor.alike);
    }
  }
  return replicas;
}

std::vector<Ranks> side_by_side(const std::vector<Placement>& placements) {
  std::vector<Ranks> together;
  for (const auto& placement : placements) {
    const auto& first = placements.front();
    if (placement.kinds != first.kinds || placement.mesh.shape != first.mesh.shape) return {};
    const auto groups = placement.replica_groups();
    together.resize(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i)
      together[i].insert(together[i].end(), groups[i].begin(), groups[i].end());
  }
  for (auto& group : together) std::sort(group.begin(), group.end());
  std::sort(together.begin(), together.end());
  return together;
}

}  // namespace ddp_doctor
