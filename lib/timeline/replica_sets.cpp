// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/replica_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace ddp_doctor {
namespace {

using Ranks = std::vector<int>;

// The ranks of its wrappers' process group; nothing if it has no wrapper, or in several groups.
std::optional<Ranks> group_of(const RankRecord& record) {
  std::optional<Ranks> group;
  for (const auto& fact : record.facts) {
    if (fact.key != "ranks" || !fact.subject.starts_with("wrapper ")) continue;
    const auto list = nlohmann::json::parse(fact.value, nullptr, false);
    if (!list.is_array()) return {};
    auto ranks = list.get<Ranks>();
    std::sort(ranks.begin(), ranks.end());
    if (group && *group != ranks) return {};
    group = std::move(ranks);
  }
  return group;
}

// The groups, if every rank is in exactly one.
std::vector<Ranks> partition(const Timeline& timeline) {
  std::set<Ranks> groups;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    const auto group = record == nullptr ? std::nullopt : group_of(*record);
    if (!group || !std::binary_search(group->begin(), group->end(), rank)) return {};
    Ranks here;
    std::set_intersection(group->begin(), group->end(), timeline.ranks().begin(),
                          timeline.ranks().end(), std::back_inserter(here));
    groups.insert(here);
  }
  std::size_t members = 0;
  for (const auto& group : groups) members += group.size();
  if (members != timeline.ranks().size()) return {};
  return {groups.begin(), groups.end()};
}

// The names and shapes of a rank's parameters.
std::string shapes_of(const RankRecord& record) {
  std::string text;
  for (const auto& tensor : record.tensors) {
    if (tensor.kind == "parameter")
      text += fmt::format("{} {};", tensor.name, fmt::join(tensor.sizes, ","));
  }
  return text;
}

// The initial weights of a rank.
std::string model_of(const Timeline& timeline, const TimelineStep& start, int rank) {
  std::string text = shapes_of(*timeline.record(rank));
  for (const auto& tensor : timeline.tensors) {
    if (const auto seen = start.find(rank, tensor.id, Stage::kWeight))
      text.append(seen->bits.begin(), seen->bits.end());
  }
  return text;
}

// Ranks with models of the same shapes, if there is no wrapper, ranks send each other tensors, and
// nothing synchronizes all of them.
std::vector<Ranks> stages(const Timeline& timeline) {
  std::map<std::string, Ranks> by_shapes;
  bool sends = false;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || !record->ddp_fields.empty()) return {};
    by_shapes[shapes_of(*record)].push_back(rank);
    for (const auto& step : record->steps) {
      for (const auto& call : step.calls) {
        if (synchronizes_all(call)) return {};
        sends = sends || is_point_to_point(call);
      }
    }
  }
  std::vector<Ranks> sets;
  for (auto& [shapes, ranks] : by_shapes) sets.push_back(std::move(ranks));
  std::sort(sets.begin(), sets.end());
  return sends && sets.size() > 1 ? sets : std::vector<Ranks>{};
}

std::vector<Ranks> groups_of_wrappers(const Timeline& timeline, const TimelineStep* start) {
  auto groups = partition(timeline);
  if (groups.size() < 2 || start == nullptr || !start->complete()) return {};
  std::set<std::string> models;
  for (const auto& group : groups) models.insert(model_of(timeline, *start, group.front()));
  return models.size() == groups.size() ? groups : std::vector<Ranks>{};
}

bool begins_apart(const Timeline& timeline, const TimelineStep* start, int tensor) {
  return start != nullptr &&
         std::any_of(timeline.replicas.begin(), timeline.replicas.end(), [&](const Ranks& ranks) {
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

// Parameters outside of wrappers, in modules with different initial weights.
std::set<int> experts(const Timeline& timeline, const TimelineStep* start) {
  std::set<std::string> owners;
  std::set<int> ids;
  if (!deals_out_tokens(timeline)) return ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && !tensor.wrapper && begins_apart(timeline, start, tensor.id))
      owners.insert(owner_of(tensor));
  }
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && !tensor.wrapper && owners.contains(owner_of(tensor)))
      ids.insert(tensor.id);
  }
  return ids;
}

// Declared to be a part of a parameter, by something other than a wrapper.
bool is_a_part(const Timeline& timeline, const TensorInfo& tensor) {
  const auto& declared = timeline.layout.placements;
  const auto found = declared.find(name_in_model(tensor.name));
  return found != declared.end() && !tensor.ddp_index && !found->second.replicated();
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

// Parameters of a sharded optimizer that the program wrote itself.
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

// Which parameters are not compared because each rank has another part of them.
void note_parts(Timeline& timeline) {
  std::map<std::string, std::vector<std::string>> by_source;
  for (const auto& [name, placement] : timeline.layout.placements)
    by_source[placement.source].push_back(name);
  for (auto& [source, names] : by_source) {
    const std::size_t count = names.size();
    constexpr std::size_t kNamed = 3;
    if (count > kNamed) names.resize(kNamed);
    timeline.notes.push_back(
        fmt::format("not compared: {} parameter{} that {} spreads over the "
                    "ranks ({}{})",
                    count, count == 1 ? "" : "s", source, fmt::join(names, ", "),
                    count > kNamed ? ", ..." : ""));
  }
  for (const auto& [model, count] : timeline.layout.unexamined)
    timeline.notes.push_back(
        fmt::format("not compared: {} tensor{} of {}, which no wrapper and no "
                    "optimizer holds",
                    count, count == 1 ? "" : "s", model));
}

}  // namespace

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

void tell_replicas_apart(Timeline& timeline) {
  note_parts(timeline);
  const auto* start = timeline.step(0);
  auto sets = groups_of_wrappers(timeline, start);
  if (sets.empty()) sets = stages(timeline);
  if (!sets.empty()) {
    timeline.replicas = sets;
    std::string text;
    for (const auto& ranks : sets)
      text += fmt::format("{}{{{}}}", text.empty() ? "" : ", ", fmt::join(ranks, ", "));
    timeline.notes.push_back(
        fmt::format("the ranks train several models, on ranks {}: ranks are compared within each "
                    "of these groups",
                    text));
  }
  const bool modules =
      std::any_of(timeline.tensors.begin(), timeline.tensors.end(), [](const TensorInfo& tensor) {
        return tensor.kind == "parameter" && !is_in_no_module(tensor);
      });
  timeline.rank_local = experts(timeline, start);
  timeline.updated_by_some = updated_by_some(timeline);
  if (const auto count = timeline.updated_by_some.size(); count > 0)
    timeline.notes.push_back(fmt::format(
        "{} parameter{} updated by the optimizers of some ranks only, and equal on every rank "
        "before the next step (a sharded optimizer): compared there",
        count, count == 1 ? " is" : "s are"));
  // Wrappers whose ignored parameters begin apart, or some of them: each rank has its own.
  std::set<std::optional<int>> own_wrappers;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && is_ignored(timeline, tensor) &&
        begins_apart(timeline, start, tensor.id))
      own_wrappers.insert(tensor.wrapper);
  }
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter") continue;
    if (own_wrappers.contains(tensor.wrapper) && is_ignored(timeline, tensor))
      timeline.rank_local.insert(tensor.id);
    if (is_a_part(timeline, tensor) ||
        (modules && is_in_no_module(tensor) && begins_apart(timeline, start, tensor.id)))
      timeline.rank_local.insert(tensor.id);
  }
}

// Numbers its tensors as the whole does, and so shares with it what was seen of them.
std::vector<Timeline> Timeline::replica_sets() const {
  std::vector<Timeline> sets;
  if (replicas.size() < 2) return sets;
  for (const auto& ranks : replicas) {
    const auto among = [&](int rank) {
      return std::binary_search(ranks.begin(), ranks.end(), rank);
    };
    RunInfo its_run = run;
    std::erase_if(its_run.exits, [&](const RankExit& exit) { return !among(exit.rank); });
    std::vector<RankRecord> records;
    for (const auto& [rank, record] : records_) {
      if (among(rank)) records.push_back(*record);
    }
    Timeline set = assemble(std::move(its_run), std::move(records));
    set.whole_ = whole_;
    set.replicas = {ranks};
    set.rank_local = rank_local;
    set.updated_by_some = updated_by_some;
    set.unpaired = unpaired;
    set.layout = layout;  // of all of it
    set.tensors = tensors;
    set.own_ids_.clear();
    set.run_ids_.clear();
    for (int rank : ranks) {
      set.own_ids_[rank] = own_ids_.at(rank);
      set.run_ids_[rank] = run_ids_.at(rank);
    }
    for (auto& tensor : set.tensors) {
      const auto held = [&](int rank) {
        return own_ids_.at(rank)[static_cast<std::size_t>(tensor.id)] >= 0;
      };
      tensor.trainable = tensor.trainable && std::any_of(ranks.begin(), ranks.end(), held);
    }
    for (auto& step : set.steps) {
      const auto* known = this->step(step.number);
      step.details = known->details;
      step.weight_drift = known->weight_drift;
    }
    for (const int rank : ranks) {
      if (const auto stack = stacks.find(rank); stack != stacks.end()) set.stacks.insert(*stack);
      if (const auto stack = native_stacks.find(rank); stack != native_stacks.end())
        set.native_stacks.insert(*stack);
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace ddp_doctor
