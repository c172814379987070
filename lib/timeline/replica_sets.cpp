// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/replica_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lib/timeline/dimensions.h"
#include "lib/timeline/own_models.h"
#include "lib/timeline/placing.h"
#include "lib/timeline/rank_local.h"
#include "lib/timeline/stated.h"

namespace ddp_doctor {
namespace {

// The ranks of its wrappers' process group, or of one wrapper's; nothing if there is none, or
// several.
std::optional<Ranks> group_of(const RankRecord& record, std::optional<int> wrapper) {
  std::optional<Ranks> group;
  for (const auto& fact : record.facts) {
    if (!fact.is("wrapper", "ranks")) continue;
    if (wrapper && number_in(fact.subject, "wrapper") != wrapper) continue;
    const auto list = nlohmann::json::parse(fact.value, nullptr, false);
    if (!list.is_array()) return {};
    auto ranks = list.get<Ranks>();
    std::sort(ranks.begin(), ranks.end());
    if (group && *group != ranks) return {};
    group = std::move(ranks);
  }
  return group;
}

}  // namespace

std::vector<Ranks> wrapper_groups(const Timeline& timeline, std::optional<int> wrapper) {
  std::set<Ranks> groups;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    const auto group = record == nullptr ? std::nullopt : group_of(*record, wrapper);
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

namespace {

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

// Whether tensors of one name have one shape, on the ranks that have them.
bool agree_on_shapes(const Timeline& timeline) {
  std::map<std::string, std::vector<std::int64_t>> sizes;
  for (int rank : timeline.ranks()) {
    for (const auto& tensor : timeline.record(rank)->tensors) {
      const auto [known, fresh] = sizes.emplace(tensor.name, tensor.sizes);
      if (!fresh && known->second != tensor.sizes) return false;
    }
  }
  return true;
}

// Ranks with models of the same shapes, if there is no wrapper, ranks send each other tensors, and
// nothing synchronizes all of them. Stages whose tensors can be told apart by name are one model.
std::vector<Ranks> stages(const Timeline& timeline) {
  std::map<std::string, Ranks> by_shapes;
  bool sends = false;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || !record->ddp_fields.empty() || reduces_over_all(*record)) return {};
    by_shapes[shapes_of(*record)].push_back(rank);
    for (const auto& step : record->steps)
      sends = sends || std::any_of(step.calls.begin(), step.calls.end(), is_point_to_point);
  }
  if (timeline.layout.pipeline && agree_on_shapes(timeline)) return {};
  std::vector<Ranks> sets;
  for (auto& [shapes, ranks] : by_shapes) sets.push_back(std::move(ranks));
  std::sort(sets.begin(), sets.end());
  return sends && sets.size() > 1 ? sets : std::vector<Ranks>{};
}

std::vector<Ranks> groups_of_wrappers(const Timeline& timeline, const TimelineStep* start) {
  auto groups = wrapper_groups(timeline);
  if (groups.size() < 2 || start == nullptr || !start->complete()) return {};
  std::set<std::string> models;
  for (const auto& group : groups) models.insert(model_of(timeline, *start, group.front()));
  return models.size() == groups.size() ? groups : std::vector<Ranks>{};
}

// Replicas are stated on ranks of several sets: they are not several models, but one on a mesh.
bool spanned(const Layout& layout, const std::vector<Ranks>& sets) {
  const auto within = [&](const Ranks& group) {
    return std::any_of(sets.begin(), sets.end(), [&](const Ranks& set) {
      return std::includes(set.begin(), set.end(), group.begin(), group.end());
    });
  };
  return !sets.empty() &&
         std::any_of(layout.stated.begin(), layout.stated.end(), [&](const auto& entry) {
           return std::any_of(entry.second.begin(), entry.second.end(), [&](const Along& along) {
             const auto& groups = along.dimension.groups;
             return along.replicated && !std::all_of(groups.begin(), groups.end(), within);
           });
         });
}

// "2 parameters of which each rank has its own (head.weight, head.bias)"
std::string counted(std::vector<std::string> names, const std::string& what) {
  constexpr std::size_t kNamed = 3;
  const std::size_t count = names.size();
  if (count > kNamed) names.resize(kNamed);
  return fmt::format("{} parameter{} {} ({}{})", count, count == 1 ? "" : "s", what,
                     fmt::join(names, ", "), count > kNamed ? ", ..." : "");
}

// Which parameters are not compared with all ranks because these hold different parts of them.
void note_parts(Timeline& timeline) {
  std::map<std::string, std::vector<std::string>> by_source;
  std::set<std::string> known;
  for (const auto& tensor : timeline.tensors) known.insert(tensor.name);
  for (const auto& [name, all] : timeline.layout.placements) {
    if (!known.contains(name)) by_source[all.front().placement.source].push_back(name);
  }
  for (const auto& [source, names] : by_source)
    timeline.notes.push_back("not compared: " +
                             counted(names, fmt::format("that {} spreads over the ranks", source)));
  for (const auto& unexamined : timeline.layout.unexamined) {
    const auto& model = unexamined.first;
    const auto count = unexamined.second;
    const auto of_model = [&](const std::string& name) { return name.starts_with(model + ":"); };
    if (std::any_of(known.begin(), known.end(), of_model)) continue;  // a later step had it
    timeline.notes.push_back(
        fmt::format("not compared: {} tensor{} of {}, which no wrapper and no "
                    "optimizer holds",
                    count, count == 1 ? "" : "s", model));
  }
}

void note_each_ranks_own(Timeline& timeline) {
  std::vector<std::string> own;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && timeline.rank_local.contains(tensor.id) &&
        !timeline.placed().of.contains(tensor.id))
      own.push_back(tensor.name);
  }
  if (!own.empty())
    timeline.notes.push_back("not compared: " + counted(own, "of which each rank has its own"));
}

}  // namespace

void tell_replicas_apart(Timeline& timeline) {
  note_parts(timeline);
  const auto& unused = timeline.layout.notes;
  timeline.notes.insert(timeline.notes.end(), unused.begin(), unused.end());
  const auto* start = timeline.step(0);
  auto sets = groups_of_wrappers(timeline, start);
  if (sets.empty()) sets = stages(timeline);
  auto groups = std::make_shared<ReplicaGroups>();
  if (spanned(timeline.layout, sets)) {
    place_wrapped(timeline, std::exchange(sets, {}), *groups);
  }
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
  if (timeline.replicas.size() == 1) place_by_wrapper(timeline, start, *groups);
  const bool one_model = place_declared(timeline, start, *groups);
  if (one_model && timeline.layout.meshes_side_by_side) timeline.layout.model_parallel.clear();
  if (timeline.layout.model_parallel.empty())
    timeline.layout.model_parallel = works_together(timeline, start);
  place_inferred(timeline, start, *groups);
  if (timeline.layout.model_parallel.empty()) {
    timeline.layout.model_parallel = place_own_models(timeline, start, *groups);
    timeline.layout.own_models = !timeline.layout.model_parallel.empty();
  }
  place_stated(timeline, *groups);
  timeline.place(groups);
  if (timeline.on_mesh()) timeline.dimensions = dimensions_of(timeline);
  timeline.rank_local = rank_local_parameters(timeline, start, *groups);
  note_each_ranks_own(timeline);
  timeline.updated_by_some = updated_by_some(timeline);
  if (const auto count = timeline.updated_by_some.size(); count > 0)
    timeline.notes.push_back(fmt::format(
        "{} parameter{} updated by the optimizers of some ranks only (a sharded optimizer), and "
        "compared before the next step, where every rank has the same",
        count, count == 1 ? " is" : "s are"));
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
    set.place(std::make_shared<ReplicaGroups>(placed_->among(ranks)));
    if (set.on_mesh()) set.dimensions = dimensions_of(set);
    for (auto& step : set.steps) {
      const auto* known = this->step(step.number);
      step.details = known->details;
      step.weight_drift = known->weight_drift;
      step.drift_along.assign(set.dimensions.size(), {});
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
