// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/placements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ddp_doctor {
namespace {

using nlohmann::json;

void add_ranks(const json& nested, std::set<int>& ranks) {
  if (nested.is_number_integer()) ranks.insert(nested.get<int>());
  if (!nested.is_array()) return;
  for (const auto& one : nested) add_ranks(one, ranks);
}

Placement placement_from(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  Placement placement;
  if (!value.is_object()) return placement;
  placement.placements = value.value("placements", std::vector<std::string>{});
  placement.source = value.value("source", "");
  if (value.contains("mesh")) add_ranks(value["mesh"], placement.ranks);
  return placement;
}

// What shards the replicas of data parallelism: every rank has a part of each parameter, and data
// of its own.
bool shards_data_parallelism(const Placement& placement, int world_size) {
  if (placement.source == "FullyShardedDataParallel" || placement.source == "DeepSpeedEngine")
    return true;
  if (placement.source != "fully_shard" || static_cast<int>(placement.ranks.size()) != world_size)
    return false;
  return placement.placements.size() == 1 ||
         (placement.placements.size() == 2 && placement.placements.front() == "Replicate");
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
  bool synchronizes = false;
  for (const auto& step : record.steps) {
    for (const auto& call : step.calls) {
      // After the last backward of every step: a reduction that the program wrote itself.
      sends = sends || (is_point_to_point(call) && call.target.empty() && call.numel != 1 &&
                        call.moment != "before-step");
      synchronizes = synchronizes || synchronizes_all(call);
    }
  }
  if (sends && !synchronizes)
    return "ranks send each other tensors that are neither gradients nor weights, as the "
           "stages of a pipeline do";
  if (moments.contains("forward") && moments.contains("backward"))
    return "ranks exchange activations in forward and backward passes, as in tensor, sequence or "
           "context parallelism";
  return {};
}

}  // namespace

bool is_point_to_point(const Collective& call) {
  return call.op.find("send") != std::string::npos || call.op.find("recv") != std::string::npos;
}

bool synchronizes_all(const Collective& call) {
  return call.group.empty() && call.moment == "before-step" && call.numel > 1 &&
         !is_point_to_point(call);
}

bool Placement::replicated() const {
  return std::all_of(placements.begin(), placements.end(),
                     [](const auto& one) { return one == "Replicate"; });
}

std::string name_in_model(const std::string& name) { return name.substr(name.find(':') + 1); }

Layout layout_of(const std::map<int, const RankRecord*>& records) {
  Layout layout;
  std::string exchange;
  for (const auto& [rank, record] : records) {
    for (const auto& fact : record->facts) {
      if (fact.subject == "placement") layout.placements[fact.key] = placement_from(fact.value);
      if (fact.subject == "unexamined") layout.unexamined[fact.key] = std::stoull(fact.value);
    }
    if (exchange.empty()) exchange = exchanged(*record);
  }
  const int world_size = records.begin()->second->header.world_size;
  for (const auto& [name, placement] : layout.placements) {
    if (placement.replicated() || shards_data_parallelism(placement, world_size)) continue;
    layout.model_parallel = fmt::format("{} is only a part of a parameter ({} of {})", name,
                                        fmt::join(placement.placements, ", "), placement.source);
    return layout;
  }
  layout.model_parallel = exchange;
  return layout;
}

}  // namespace ddp_doctor
