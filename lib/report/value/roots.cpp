// SPDX-License-Identifier: BSD-3-Clause
// The record has roots of its own (record.h, Root), over everything that one rank saw, by its own
// ids, including tensors that only that rank has. These roots are by name, over the tensors in
// which a difference would be a finding.
#include "lib/report/value/roots.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "lib/diagnose/facts.h"
#include "lib/timeline/rank_local.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kNameLength = 16;  // hexadecimal digits that tell lists of tensors apart

std::string digest_of_text(const std::string& text) {
  const std::int64_t sizes[] = {static_cast<std::int64_t>(text.size())};
  constexpr std::int64_t kStrides[] = {1};
  return to_hex(digest({text.data(), DType::kUInt8, sizes, kStrides}).bits);
}

// Tensors in the order of their names, and the digest of names, types and sizes.
struct Tensors {
  std::vector<int> ids;
  std::string name;
};

Tensors described(const Timeline& timeline, std::vector<int> ids) {
  const auto tensor = [&](int id) -> const TensorInfo& {
    return timeline.tensors[static_cast<std::size_t>(id)];
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int a, int b) { return tensor(a).name < tensor(b).name; });
  std::string text;
  for (const int id : ids) {
    text += tensor(id).name + '\n' + tensor(id).dtype;
    for (const auto size : tensor(id).sizes) text += ' ' + std::to_string(size);
    text += '\n';
  }
  return {std::move(ids), digest_of_text(text).substr(0, kNameLength)};
}

// Empty if the rank has none of them.
std::string root_of(const TimelineStep& step, int rank, const std::vector<int>& ids, Stage stage) {
  std::string text;
  bool any = false;
  for (const int id : ids) {
    const auto seen = step.find(rank, id, stage);
    any = any || seen;
    text += seen ? '+' : '-';
    if (seen) text.append(seen->bits.begin(), seen->bits.end());
  }
  return any ? digest_of_text(text) : std::string();
}

// What a part of the job's records tells about one of its ranks and a tensor.
struct DeclaredReplicas {
  RankSet ranks;           // of the whole job, that must hold the same
  bool of_the_job = true;  // not of some of its ranks only: others may have replicas
};

std::optional<DeclaredReplicas> declared_replicas(const Timeline& timeline, int id, int rank,
                                                  Stage stage) {
  const auto& layout = timeline.layout;
  const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
  const auto placed = timeline.placed().of.find(id);
  if (placed == timeline.placed().of.end() || placed->second.source != PlacementSource::kDeclared)
    return {};
  const bool other = stage == Stage::kGradient && layout.gradients.contains(name);
  const auto& declarations = other ? layout.gradients : layout.placements;
  const auto found = declarations.find(name);
  if (found == declarations.end()) return {};
  const auto* record = timeline.record(rank);
  if (record == nullptr) return {};
  const auto world_size = static_cast<std::size_t>(record->header.world_size);
  for (const auto& [placement, by] : found->second) {
    if (!std::binary_search(by.begin(), by.end(), rank)) continue;
    for (const auto& group : placement.replica_groups()) {
      if (std::binary_search(group.begin(), group.end(), rank))
        return DeclaredReplicas{RankSet(group), placement.mesh.ranks.size() == world_size};
    }
    if (by.size() == 1 && !placement.replicas.empty())
      return DeclaredReplicas{RankSet(placement.replicas)};
  }
  return {};
}

// Weights may go to other ranks after the first step, as in local SGD or a sharded optimizer: a
// collective of weights, or of something unknown as large as a rank's part of them.
bool exchanges_weights(const Timeline& timeline) {
  const auto* first = timeline.record(timeline.first_rank());
  if (first == nullptr) return false;
  std::int64_t elements = 0;
  for (const int id : timeline.trainable())
    elements += timeline.tensors[static_cast<std::size_t>(id)].numel;
  const std::int64_t part = elements / std::max(first->header.world_size, 1);
  const auto is_exchange = [&](const Collective& call) {
    if (call.target.starts_with("weight")) return true;
    return call.target.empty() && (call.moment == "outside" || call.moment == "optimizer") &&
           call.numel * call.count >= part;
  };
  return std::any_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
    const auto records = step.records();
    return step.number > 1 && std::any_of(records.begin(), records.end(), [&](const auto* record) {
             return std::any_of(record->calls.begin(), record->calls.end(), is_exchange);
           });
  });
}

class Roots {
 public:
  explicit Roots(const Timeline& timeline)
      : timeline_(timeline), exchange_(!timeline.whole() && exchanges_weights(timeline)) {}

  std::vector<RootGroup> groups_of(const TimelineStep& step, Stage stage) {
    const bool part_of_a_mesh = timeline_.on_mesh() && !timeline_.whole();
    return part_of_a_mesh && !exchange_ ? on_mesh(step, stage) : among_all(step, stage);
  }

 private:
  std::vector<RootGroup> among_all(const TimelineStep& step, Stage stage) {
    auto ids = compared(timeline_, step, stage);
    const auto apart = std::stable_partition(ids.begin(), ids.end(), [&](int id) {
      return timeline_.whole() || !may_be_each_ranks_own(id);
    });
    std::vector<RootGroup> groups;
    if (exchange_) {
      add_groups(step, stage, ids, kUndeclared, groups);
      return groups;
    }
    add_groups(step, stage, {ids.begin(), apart}, "", groups);
    if (apart != ids.end()) add_groups(step, stage, {apart, ids.end()}, kUndeclared, groups);
    return groups;
  }

  void add_groups(const TimelineStep& step, Stage stage, const std::vector<int>& ids,
                  const char* replicas, std::vector<RootGroup>& groups) {
    const Tensors& tensors = of(ids);
    std::map<std::string, std::vector<int>> by_root;
    if (step.same_everywhere(stage)) {
      by_root[root_of(step, timeline_.first_rank(), tensors.ids, stage)] = timeline_.ranks();
    } else {
      std::map<int, std::string> root;  // by the lowest rank that saw the same
      for (const int rank : timeline_.ranks()) {
        const int like = step.like(rank, {Seen::kDigests, stage});
        if (like == rank) root[rank] = root_of(step, rank, tensors.ids, stage);
        by_root[root.at(like)].push_back(rank);
      }
    }
    by_root.erase("");
    for (const auto& [root, ranks] : by_root)
      groups.push_back({tensors.name, root, RankSet(ranks), replicas});
  }

  // DistributedDataParallel was told to leave it alone, or it is a slice of a flat copy: ranks of
  // other reports may begin apart.
  bool may_be_each_ranks_own(int id) {
    const auto [known, fresh] = own_.emplace(id, false);
    const auto& tensor = timeline_.tensors[static_cast<std::size_t>(id)];
    if (fresh) known->second = is_in_no_module(tensor) || is_ignored(timeline_, tensor);
    return known->second;
  }

  // Each rank has a root for every list of tensors that the same ranks hold.
  std::vector<RootGroup> on_mesh(const TimelineStep& step, Stage stage) {
    std::map<std::tuple<std::string, std::string, std::string>, std::vector<int>> ranks;
    const auto ids_compared = compared(timeline_, step, stage);
    for (const int rank : timeline_.ranks()) {
      const auto& declared = declared_by(rank, stage);
      std::map<std::string, std::vector<int>> ids = declared.by_replicas;
      for (const int id : ids_compared) {
        if (!declared.all.contains(id)) ids[kUndeclared].push_back(id);
      }
      for (const auto& [replicas, those] : ids) {
        const Tensors& tensors = of(those);
        const auto root = root_of(step, rank, tensors.ids, stage);
        if (!root.empty()) ranks[{replicas, tensors.name, root}].push_back(rank);
      }
    }
    std::vector<RootGroup> groups;
    for (const auto& [key, those] : ranks) {
      const auto& [replicas, tensors, root] = key;
      groups.push_back({tensors, root, RankSet(those), replicas});
    }
    return groups;
  }

  struct Declared {
    std::set<int> all;
    std::map<std::string, std::vector<int>> by_replicas;
  };

  const Declared& declared_by(int rank, Stage stage) {
    const auto [known, fresh] = declared_.emplace(std::pair(rank, stage), Declared{});
    if (!fresh) return known->second;
    for (const auto& tensor : timeline_.tensors) {
      if (tensor.kind != "parameter") continue;
      const auto declared = declared_replicas(timeline_, tensor.id, rank, stage);
      if (!declared) continue;
      known->second.all.insert(tensor.id);
      if (!tensor.trainable || timeline_.updated_by_some.contains(tensor.id)) continue;
      auto& by_replicas = known->second.by_replicas;
      if (declared->ranks.size() > 1) by_replicas[declared->ranks.text()].push_back(tensor.id);
      if (!declared->of_the_job) by_replicas[kUndeclared].push_back(tensor.id);
    }
    return known->second;
  }

  const Tensors& of(const std::vector<int>& ids) {
    auto found = tensors_.find(ids);
    if (found == tensors_.end()) found = tensors_.emplace(ids, described(timeline_, ids)).first;
    return found->second;
  }

  const Timeline& timeline_;
  bool exchange_;
  std::map<int, bool> own_;
  std::map<std::vector<int>, Tensors> tensors_;  // by ids: nearly all steps have the same ones
  std::map<std::pair<int, Stage>, Declared> declared_;  // by rank
};

}  // namespace

std::vector<StepRoots> roots_of(const Timeline& timeline) {
  std::vector<StepRoots> roots;
  Roots of_all(timeline);
  for (const auto& step : timeline.steps) {
    const auto records = step.records();
    const bool looked_at = std::any_of(records.begin(), records.end(),
                                       [](const auto* rank) { return rank->examined; });
    if (!looked_at) continue;
    StepRoots here{step.number, {}, of_all.groups_of(step, Stage::kWeight)};
    if (step.number > 0) here.gradient = of_all.groups_of(step, Stage::kGradient);
    if (!here.gradient.empty() || !here.weight.empty()) roots.push_back(std::move(here));
  }
  return roots;
}

bool comparable(const std::vector<RootGroup>& groups) {
  std::map<std::string, std::string> tensors;
  return std::all_of(groups.begin(), groups.end(), [&](const RootGroup& group) {
    return group.replicas == kUndeclared ||
           tensors.emplace(group.replicas, group.tensors).first->second == group.tensors;
  });
}

bool all_equal(const std::vector<RootGroup>& groups) {
  std::set<std::string> replicas;
  return comparable(groups) &&
         std::all_of(groups.begin(), groups.end(), [&](const RootGroup& group) {
           return replicas.insert(group.replicas).second;
         });
}

bool some_differ(const std::vector<RootGroup>& groups) {
  std::set<std::pair<std::string, std::string>> seen;
  return std::any_of(groups.begin(), groups.end(), [&](const RootGroup& group) {
    return group.replicas != kUndeclared && !seen.emplace(group.replicas, group.tensors).second;
  });
}

bool comparable(const std::vector<StepRoots>& roots) {
  return std::all_of(roots.begin(), roots.end(), [](const StepRoots& step) {
    return comparable(step.gradient) && comparable(step.weight);
  });
}

}  // namespace ddp_doctor
