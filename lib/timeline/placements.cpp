// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/placements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/timeline/stated.h"

namespace ddp_doctor {
namespace {

using nlohmann::json;

// Nested lists of ranks, as DeviceMesh.mesh.tolist() gives them.
void add_ranks(const json& nested, std::size_t depth, Mesh& mesh) {
  if (nested.is_number_integer()) mesh.ranks.push_back(nested.get<int>());
  if (!nested.is_array()) return;
  if (mesh.shape.size() <= depth) mesh.shape.push_back(static_cast<int>(nested.size()));
  for (const auto& one : nested) add_ranks(one, depth + 1, mesh);
}

Mesh mesh_from(const json& value) {
  Mesh mesh;
  if (!value.is_object()) return mesh;
  add_ranks(value.value("mesh", json::array()), 0, mesh);
  std::size_t places = 1;
  for (const int size : mesh.shape) places *= static_cast<std::size_t>(size);
  if (places != mesh.ranks.size()) return {};  // damaged
  mesh.names = value.value("dimensions", std::vector<std::string>{});
  return mesh;
}

// `meshes`: those that the rank has described so far, by number.
Placement placement_from(const std::string& text, const std::map<std::string, Mesh>& meshes) {
  const json value = json::parse(text, nullptr, false);
  Placement placement;
  if (!value.is_object()) return placement;
  placement.kinds = value.value("placements", std::vector<std::string>{});
  placement.source = value.value("source", "");
  placement.replicas = value.value("replicas", Ranks{});
  const auto mesh = value.find("mesh");
  if (mesh == value.end()) return placement;
  if (mesh->is_array()) placement.mesh = mesh_from(value);
  if (mesh->is_number_integer()) {
    if (const auto known = meshes.find(std::to_string(mesh->get<int>())); known != meshes.end())
      placement.mesh = known->second;
  }
  return placement;
}

// Ranks are asked in their order. What a rank said last counts.
void declare(std::vector<Declared>& declared, Placement placement, int rank) {
  for (auto& one : declared) {
    if (one.by.back() == rank) one.by.pop_back();
  }
  std::erase_if(declared, [](const Declared& one) { return one.by.empty(); });
  const auto known = std::find_if(declared.begin(), declared.end(),
                                  [&](const Declared& one) { return one.placement == placement; });
  if (known == declared.end()) {
    declared.push_back({std::move(placement), {rank}});
  } else {
    known->by.push_back(rank);
  }
}

// What shards the replicas of data parallelism: every rank has a part of each parameter, and data
// of its own.
bool shards_data_parallelism(const Placement& placement) {
  const auto& kinds = placement.kinds;
  return placement.source == "FullyShardedDataParallel" ||
         placement.source.starts_with("DeepSpeed") ||
         (placement.source == "fully_shard" &&
          (kinds.size() == 1 || (kinds.size() == 2 && kinds.front() == "Replicate")));
}

// The ranks exchange activations: what a wrapper covers are replicas all the same.
std::string exchanged(const RankRecord& record) {
  std::set<std::string> moments;
  for (const auto& fact : record.facts) {
    if (fact.subject == "activations") moments.insert(fact.key);
  }
  if (moments.contains("point-to-point"))
    return "ranks are the stages of a pipeline (torch.distributed.pipelining)";
  if (!record.ddp_fields.empty()) return {};
  bool sends = false;
  for (const auto& step : record.steps) {
    for (const auto& call : step.calls) {
      // After the last backward of every step: a reduction that the program wrote itself.
      sends = sends || (is_point_to_point(call) && call.target.empty() && call.numel != 1 &&
                        call.moment != "before-step");
    }
  }
  if (sends && !reduces_over_all(record))
    return "ranks send each other tensors that are neither gradients nor weights, as the "
           "stages of a pipeline do";
  if (moments.contains("forward") && moments.contains("backward"))
    return "ranks exchange activations in forward and backward passes, as in tensor, sequence or "
           "context parallelism";
  return {};
}

}  // namespace

Mesh mesh_in(const std::string& fact) { return mesh_from(json::parse(fact, nullptr, false)); }

bool is_point_to_point(const Collective& call) {
  return call.op.find("send") != std::string::npos || call.op.find("recv") != std::string::npos;
}

bool reduces_over_all(const RankRecord& record) {
  std::size_t parameters = 0;
  std::int64_t elements = 0;
  for (const auto& tensor : record.tensors) {
    if (tensor.kind != "parameter" || !tensor.trainable) continue;
    ++parameters;
    elements += tensor.numel;
  }
  std::set<std::string> targets;
  std::int64_t most = 0;  // of one step, in buckets
  for (const auto& step : record.steps) {
    std::int64_t here = 0;
    for (const auto& call : step.calls) {
      const bool over_all = call.group.empty() && call.moment == "before-step";
      if (!over_all || call.numel < 2 || is_point_to_point(call)) continue;
      if (call.target.empty()) {
        here += call.numel * call.count;
      } else {
        targets.insert(call.target);
      }
    }
    most = std::max(most, here);
  }
  return targets.size() * 2 > parameters || most * 2 > elements;
}

bool Layout::replicated() const {
  return std::all_of(placements.begin(), placements.end(), [](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(),
                       [](const Declared& one) { return one.placement.replicated(); });
  });
}

std::vector<Ranks> replica_groups(const std::vector<Declared>& declared, const Ranks& all) {
  std::set<Ranks> groups;
  const auto add = [&](const Ranks& replicas) {
    Ranks here;
    std::set_intersection(replicas.begin(), replicas.end(), all.begin(), all.end(),
                          std::back_inserter(here));
    if (!here.empty()) groups.insert(std::move(here));
  };
  for (const auto& [placement, by] : declared) {
    if (!placement.replicas.empty()) add(placement.replicas);
    for (const auto& group : placement.replica_groups()) add(group);
  }
  // Ranks that have none of it, such as other stages of a pipeline.
  Ranks silent = all;
  for (const auto& [placement, by] : declared) {
    for (const int rank : by) std::erase(silent, rank);
  }
  for (const int rank : silent) groups.insert({rank});
  std::vector<Ranks> found(groups.begin(), groups.end());
  return is_partition(found, all) ? found : std::vector<Ranks>{};
}

std::string name_in_model(const std::string& name) { return name.substr(name.find(':') + 1); }

namespace {

// The parameters that a fact about "Model:layer.weight" speaks of, by the names that they have in
// the records: without their model where there is only one. An older record leaves it out.
class Named {
 public:
  explicit Named(const std::map<int, const RankRecord*>& records) {
    for (const auto& [rank, record] : records) {
      for (const auto& tensor : record->tensors)
        by_place_[name_in_model(tensor.name)].insert(tensor.name);
    }
  }
  std::set<std::string> by(const std::string& key) const {
    const auto place = by_place_.find(name_in_model(key));
    if (place == by_place_.end()) return {name_in_model(key)};
    if (key.find(':') == std::string::npos) return place->second;
    return {place->second.contains(key) ? key : name_in_model(key)};
  }

 private:
  std::map<std::string, std::set<std::string>> by_place_;
};

}  // namespace

Layout layout_of(const std::map<int, const RankRecord*>& records, const StatedPlacements& stated) {
  Layout layout;
  layout.dimensions = dimensions_of(records, stated);
  layout.stated = stated_placements(records, stated, layout.dimensions, layout.notes);
  std::string exchange;
  const Named named(records);
  for (const auto& [rank, record] : records) {
    std::map<std::string, Mesh> meshes;
    for (const auto& fact : record->facts) {
      if (fact.subject == "mesh") meshes[fact.key] = mesh_in(fact.value);
      const bool of_gradient = fact.subject == "gradient placement";
      if (of_gradient || fact.subject == "placement") {
        for (const auto& name : named.by(fact.key))
          declare((of_gradient ? layout.gradients : layout.placements)[name],
                  placement_from(fact.value, meshes), rank);
      }
      if (fact.subject == "unexamined") layout.unexamined[fact.key] = std::stoull(fact.value);
    }
    if (exchange.empty()) exchange = exchanged(*record);
  }
  layout.pipeline = exchange.find("stages of a pipeline") != std::string::npos;
  const auto world_size = static_cast<std::size_t>(records.begin()->second->header.world_size);
  for (const auto& [name, declared] : layout.placements) {
    for (const auto& [placement, by] : declared) {
      if (placement.replicated()) continue;
      layout.reduces_into_shards |= shards_data_parallelism(placement);
      const auto ranks = placement.mesh.ranks.size();
      const bool some = ranks > 0 && ranks < world_size;
      if (shards_data_parallelism(placement) && !some) continue;
      const bool first = layout.model_parallel.empty();
      layout.meshes_side_by_side = (first || layout.meshes_side_by_side) &&
                                   shards_data_parallelism(placement) && exchange.empty();
      if (first)
        layout.model_parallel = fmt::format("each rank holds only a part of {} ({} of {})", name,
                                            fmt::join(placement.kinds, ", "), placement.source);
    }
  }
  if (!layout.model_parallel.empty()) return layout;
  layout.model_parallel = exchange;
  if (!exchange.empty()) return layout;
  for (const auto& [name, all] : layout.stated) {
    for (const auto& along : all) {
      if (!along.replicated)
        layout.model_parallel =
            fmt::format("each rank holds only a part of {}, as is stated", name);
    }
  }
  return layout;
}

}  // namespace ddp_doctor
