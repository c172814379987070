// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/rank_local.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace ddp_doctor {
namespace {

// The step before which its weights were first seen, by rank; 0 where the first step's state has
// it. Empty unless every rank has seen them.
std::map<int, const TimelineStep*> first_seen(const Timeline& timeline, int id) {
  std::map<int, const TimelineStep*> seen;
  for (const int rank : timeline.ranks()) {
    const auto found =
        std::find_if(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
          return step.find(rank, id, step.number == 0 ? Stage::kWeight : Stage::kWeightBefore);
        });
    if (found == timeline.steps.end()) return {};
    seen[rank] = &*found;
  }
  return seen;
}

bool begins_apart(const Timeline& timeline, const TimelineStep* start, int tensor) {
  if (start == nullptr) return false;
  if (start->groups(tensor, Stage::kWeight, timeline.ranks()).empty())
    return begins_apart_later(timeline, tensor).has_value();
  return std::any_of(timeline.replicas.begin(), timeline.replicas.end(), [&](const Ranks& ranks) {
    return start->groups(tensor, Stage::kWeight, ranks).size() > 1;
  });
}

// Only a mixture of experts sends a different part of a tensor to every rank.
bool deals_out_tokens(const Timeline& timeline) {
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    for (const auto& step : record->steps) {
      for (const auto& call : step.calls) {
        if (call.op.starts_with("all_to_all")) return true;
      }
    }
  }
  return false;
}

// The model it is in, where the job has several, or the module that holds it.
std::string owner_of(const TensorInfo& tensor) {
  const auto colon = tensor.name.find(':');
  return tensor.name.substr(0, colon != std::string::npos ? colon : tensor.name.rfind('.'));
}

// Named so by its author: an expert of a mixture; beside wrappers also an embedding table, of which
// each rank holds some.
bool is_named_expert(const TensorInfo& tensor, bool beside_wrappers) {
  const auto has = [&](const char* word) { return tensor.name.find(word) != std::string::npos; };
  return (has("expert") || has("Expert") || (beside_wrappers && has("emb"))) && !has("shared") &&
         !has("Shared");
}

}  // namespace

std::optional<std::int64_t> begins_apart_later(const Timeline& timeline, int tensor) {
  const auto seen = first_seen(timeline, tensor);
  const auto bits = [&](int rank) {
    const auto* at = seen.at(rank);
    return at->find(rank, tensor, at->number == 0 ? Stage::kWeight : Stage::kWeightBefore)->bits;
  };
  std::int64_t step = 0;
  for (const auto& [rank, at] : seen) step = std::max(step, at->number);
  const auto& replicas = timeline.replicas_of(tensor, Stage::kWeight);
  const bool same = std::all_of(replicas.begin(), replicas.end(), [&](const Ranks& ranks) {
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      return !seen.contains(rank) || !seen.contains(ranks.front()) ||
             bits(rank) == bits(ranks.front());
    });
  });
  return same ? std::nullopt : std::optional(step);
}

std::set<int> experts_of_one_seed(const Timeline& timeline, const TimelineStep* start) {
  std::set<int> ids;
  if (!deals_out_tokens(timeline)) return ids;
  const bool wrappers = std::any_of(timeline.tensors.begin(), timeline.tensors.end(),
                                    [](const TensorInfo& tensor) { return tensor.wrapper; });
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || tensor.wrapper || !is_named_expert(tensor, wrappers))
      continue;
    if (begins_apart(timeline, start, tensor.id)) return {};
    ids.insert(tensor.id);
  }
  return ids;
}

bool is_ignored(const Timeline& timeline, const TensorInfo& tensor) {
  if (!tensor.wrapper || tensor.ddp_index) return false;
  const auto* fact =
      timeline.fact(timeline.first_rank(), fmt::format("wrapper {}", *tensor.wrapper), "ignored");
  if (fact == nullptr) return false;
  const auto names = nlohmann::json::parse(fact->value).get<std::vector<std::string>>();
  return std::find(names.begin(), names.end(), name_in_model(tensor.name)) != names.end();
}

bool is_in_no_module(const TensorInfo& tensor) {
  constexpr std::string_view kPrefix = "parameter";
  const std::string_view name = tensor.name;
  return !tensor.wrapper && name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

namespace {

// Several ranks hold the same of it.
bool has_replicas(const ReplicaGroups& groups, int id) {
  const auto placed = groups.of.find(id);
  return placed != groups.of.end() &&
         std::any_of(placed->second.weight.begin(), placed->second.weight.end(),
                     [](const Ranks& ranks) { return ranks.size() > 1; });
}

// Parameters outside of wrappers, in modules with different initial weights, or of experts.
std::set<int> experts(const Timeline& timeline, const TimelineStep* start,
                      const ReplicaGroups& groups) {
  std::set<std::string> owners;
  std::set<int> ids = experts_of_one_seed(timeline, start);
  if (!deals_out_tokens(timeline)) return ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || tensor.wrapper || has_replicas(groups, tensor.id)) continue;
    if (begins_apart(timeline, start, tensor.id)) owners.insert(owner_of(tensor));
  }
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && !tensor.wrapper && owners.contains(owner_of(tensor)) &&
        !has_replicas(groups, tensor.id))
      ids.insert(tensor.id);
  }
  return ids;
}

bool is_each_ranks_own(const ReplicaGroups::Of& of) {
  return std::all_of(of.weight.begin(), of.weight.end(),
                     [](const Ranks& ranks) { return ranks.size() == 1; });
}

// Its values were drawn, and by every rank the same: a seed or a broadcast of all ranks, not one of
// its own. Zeros and ones are the same without.
bool is_drawn_alike(const Timeline& timeline, const TimelineStep* start, int id) {
  if (begins_apart(timeline, start, id)) return false;
  const auto seen = first_seen(timeline, id);
  return std::any_of(seen.begin(), seen.end(), [&](const auto& at) {
    const auto& [rank, step] = at;
    const auto sample =
        step->sample(rank, id, step->number == 0 ? Stage::kWeight : Stage::kWeightBefore);
    if (!sample) return false;
    for (std::size_t i = 1; i < sample->values.size(); ++i) {
      if (sample->values[i] != sample->values[0]) return true;
    }
    return false;
  });
}

// Of wrappers that were told to ignore parameters of which some begin apart: each rank has its own.
// A module whose parameters all ranks drew alike is none of them: a router beside its experts.
std::set<int> ignored_apart(const Timeline& timeline, const TimelineStep* start) {
  std::set<std::optional<int>> wrappers;
  std::set<std::string> owners;
  std::set<int> ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && is_ignored(timeline, tensor) &&
        begins_apart(timeline, start, tensor.id)) {
      wrappers.insert(tensor.wrapper);
      owners.insert(owner_of(tensor));
    }
  }
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && wrappers.contains(tensor.wrapper) &&
        is_ignored(timeline, tensor) &&
        (owners.contains(owner_of(tensor)) || !is_drawn_alike(timeline, start, tensor.id)))
      ids.insert(tensor.id);
  }
  return ids;
}

// In no module, in a program that has modules.
std::set<int> in_no_module_apart(const Timeline& timeline, const TimelineStep* start) {
  std::set<int> ids;
  bool modules = false;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter") continue;
    if (!is_in_no_module(tensor))
      modules = true;
    else if (begins_apart(timeline, start, tensor.id))
      ids.insert(tensor.id);
  }
  return modules ? ids : std::set<int>{};
}

// The optimizers of some ranks hold it, those of others do not.
bool held_by_some(const TimelineStep& step, int id) {
  bool held = false;
  bool left_out = false;
  for (const int rank : *step.here) {
    const auto usage = step.usage(rank, id);
    if (!usage) continue;
    (usage->in_optimizer ? held : left_out) = true;
  }
  return held && left_out;
}

// Its sampled values before the step are the same on every rank.
bool begins_alike(const TimelineStep& step, int id) {
  const auto first = step.sample(step.first_rank(), id, Stage::kWeightBefore);
  return first && std::all_of(step.here->begin(), step.here->end(), [&](int rank) {
           const auto seen = step.sample(rank, id, Stage::kWeightBefore);
           return seen && seen->values == first->values;
         });
}

}  // namespace

std::set<int> rank_local_parameters(const Timeline& timeline, const TimelineStep* start,
                                    const ReplicaGroups& groups) {
  std::set<int> ids = experts(timeline, start, groups);
  for (const auto& [id, of] : groups.of) {
    if (is_each_ranks_own(of)) ids.insert(id);
  }
  ids.merge(ignored_apart(timeline, start));
  ids.merge(in_no_module_apart(timeline, start));
  return ids;
}

std::set<int> updated_by_some(const Timeline& timeline) {
  std::set<int> ids, wrong;
  const TimelineStep* before = nullptr;
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || !step.examined() || !step.complete()) continue;
    for (const auto& tensor : timeline.tensors) {
      if (tensor.kind != "parameter" || !held_by_some(step, tensor.id)) continue;
      const bool next = before != nullptr && before->number + 1 == step.number;
      if (next) (begins_alike(step, tensor.id) ? ids : wrong).insert(tensor.id);
    }
    before = &step;
  }
  for (const int id : wrong) ids.erase(id);
  return ids;
}

}  // namespace ddp_doctor
