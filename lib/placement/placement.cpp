// SPDX-License-Identifier: BSD-3-Clause
#include "lib/placement/placement.h"

#include <algorithm>
#include <map>

namespace ddp_doctor {
namespace {

constexpr char kReplicate[] = "Replicate";

// The ranks in groups that share their coordinates along the dimensions that `fixed` names.
std::vector<Ranks> grouped(const Mesh& mesh, const std::vector<bool>& fixed) {
  std::map<std::size_t, Ranks> rows;
  for (std::size_t at = 0; at < mesh.ranks.size(); ++at) {
    std::size_t row = 0;
    std::size_t rest = at;
    std::size_t stride = 1;
    for (std::size_t i = mesh.shape.size(); i-- > 0;) {
      const auto size = static_cast<std::size_t>(mesh.shape[i]);
      if (fixed[i]) row += stride * (rest % size);
      rest /= size;
      stride *= size;
    }
    rows[row].push_back(mesh.ranks[at]);
  }
  std::vector<Ranks> groups;
  for (auto& [row, ranks] : rows) {
    std::sort(ranks.begin(), ranks.end());
    groups.push_back(std::move(ranks));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace

std::string Mesh::name_of(std::size_t dimension) const {
  return dimension < names.size() ? names[dimension] : "dimension " + std::to_string(dimension);
}

std::vector<Ranks> Mesh::along(std::size_t dimension) const {
  std::vector<bool> fixed(shape.size(), true);
  fixed[dimension] = false;
  return grouped(*this, fixed);
}

bool Placement::replicated() const {
  return std::all_of(kinds.begin(), kinds.end(),
                     [](const auto& kind) { return kind == kReplicate; });
}

std::vector<Ranks> Placement::replica_groups() const {
  if (mesh.ranks.empty() || kinds.size() != mesh.shape.size()) return {};
  std::vector<bool> fixed;
  for (const auto& kind : kinds) fixed.push_back(kind != kReplicate);
  return grouped(mesh, fixed);
}

std::vector<Ranks> replica_groups(const std::vector<Along>& known,
                                  const std::vector<Ranks>& otherwise) {
  // Each rank leads to one of its replicas, and the lowest to itself.
  std::map<int, int> leads;
  const auto lowest = [&](int rank) {
    while (leads.at(rank) != rank) rank = leads.at(rank);
    return rank;
  };
  const auto join = [&](int a, int b) {
    const int low = std::min(lowest(a), lowest(b));
    leads[lowest(a)] = leads[lowest(b)] = low;
  };
  for (const auto& group : otherwise) {
    for (const int rank : group) leads[rank] = rank;
  }
  // By rank: its places in the groups of `known`, one for each dimension.
  std::map<int, std::vector<std::size_t>> places;
  for (const auto& [dimension, replicated] : known) {
    for (const auto& group : dimension.groups) {
      for (std::size_t i = 0; i < group.size(); ++i) places[group[i]].push_back(i);
      for (const int rank : group) {
        if (replicated && leads.contains(rank) && leads.contains(group.front()))
          join(rank, group.front());
      }
    }
  }
  for (const auto& group : otherwise) {
    std::map<std::vector<std::size_t>, int> first;
    for (const int rank : group) join(rank, first.try_emplace(places[rank], rank).first->second);
  }
  std::map<int, Ranks> groups;
  for (const auto& [rank, next] : leads) groups[lowest(rank)].push_back(rank);
  std::vector<Ranks> found;
  for (auto& [rank, group] : groups) found.push_back(std::move(group));
  return found;
}

bool is_partition(const std::vector<Ranks>& groups, const Ranks& all) {
  Ranks members;
  for (const auto& group : groups) members.insert(members.end(), group.begin(), group.end());
  std::sort(members.begin(), members.end());
  return members == all;
}

std::vector<Ranks> each_alone(const Ranks& all) {
  std::vector<Ranks> groups;
  for (const int rank : all) groups.push_back({rank});
  return groups;
}

std::string in_braces(const std::vector<Ranks>& groups) {
  std::string text;
  for (const auto& group : groups) {
    text += text.empty() ? "{" : ", {";
    for (const int rank : group) text += (rank == group.front() ? "" : ", ") + std::to_string(rank);
    text += "}";
  }
  return text;
}

}  // namespace ddp_doctor
