// SPDX-License-Identifier: BSD-3-Clause
#include "lib/placement/infer.h"

#include <algorithm>

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

}  // namespace

std::vector<std::vector<Ranks>> infer_replicas(const std::vector<Undeclared>& tensors) {
  std::map<std::string, std::vector<Ranks>> shards;
  for (const auto& tensor : tensors) {
    if (tensor.alike.size() < 2) continue;
    auto& groups = shards[tensor.module];
    groups = groups.empty() ? tensor.alike : meet(groups, tensor.alike);
  }
  std::vector<std::vector<Ranks>> replicas;
  for (const auto& tensor : tensors) {
    const auto shard = shards.find(tensor.module);
    replicas.push_back(shard == shards.end() ? std::vector<Ranks>{} : shard->second);
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
