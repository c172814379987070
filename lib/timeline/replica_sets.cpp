// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/replica_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lib/placement/infer.h"
#include "lib/timeline/dimensions.h"
#include "lib/timeline/stated.h"

namespace ddp_doctor {
namespace {

// The ranks of its wrappers' process group, or of one wrapper's; nothing if there is none, or
// several.
std::optional<Ranks> group_of(const RankRecord& record, std::optional<int> wrapper) {
  std::optional<Ranks> group;
  const std::string one = wrapper ? fmt::format("wrapper {}", *wrapper) : "";
  for (const auto& fact : record.facts) {
    if (fact.key != "ranks" || !fact.subject.starts_with("wrapper ")) continue;
    if (wrapper && fact.subject != one) continue;
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

// The module that holds it directly, or a parameter of the model itself.
std::string module_of(const TensorInfo& tensor) {
  const auto dot = tensor.name.rfind('.');
  return dot == std::string::npos ? tensor.name : tensor.name.substr(0, dot);
}

// Named so by its author.
bool is_named_expert(const TensorInfo& tensor) {
  const auto has = [&](const char* word) { return tensor.name.find(word) != std::string::npos; };
  return (has("expert") || has("Expert")) && !has("shared") && !has("Shared");
}

// The experts that every rank has for itself although all begin alike, as one seed makes them.
// Where some begin apart, the weights show who holds the same.
std::set<int> experts_of_one_seed(const Timeline& timeline, const TimelineStep* start) {
  std::set<int> ids;
  if (!deals_out_tokens(timeline)) return ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || tensor.wrapper || !is_named_expert(tensor)) continue;
    if (begins_apart(timeline, start, tensor.id)) return {};
    ids.insert(tensor.id);
  }
  return ids;
}

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

const std::vector<Declared>* declared(const std::map<std::string, std::vector<Declared>>& all,
                                      const TensorInfo& tensor) {
  const auto found = all.find(tensor.name);
  return found == all.end() ? nullptr : &found->second;
}

std::vector<Ranks> each_alone(const Timeline& timeline) {
  std::vector<Ranks> groups;
  for (const int rank : timeline.ranks()) groups.push_back({rank});
  return groups;
}

bool begin_alike(const TimelineStep& start, int tensor, const std::vector<Ranks>& groups) {
  return std::all_of(groups.begin(), groups.end(), [&](const Ranks& ranks) {
    const auto alike = start.groups(tensor, Stage::kWeight, ranks);
    return alike.size() == 1 && alike.front().size() == ranks.size();
  });
}

// Tensors whose placement is declared, by something other than a wrapper that replicates them.
// Returns whether meshes side by side hold replicas of one model.
bool place_declared(const Timeline& timeline, const TimelineStep* start, ReplicaGroups& groups) {
  std::map<int, std::vector<Ranks>> across;  // meshes side by side
  for (const auto& tensor : timeline.tensors) {
    const auto* all = declared(timeline.layout.placements, tensor);
    if (tensor.kind != "parameter" || all == nullptr || tensor.ddp_index) continue;
    const bool whole = std::all_of(all->begin(), all->end(),
                                   [](const auto& one) { return one.placement.replicated(); });
    auto replicas = replica_groups(*all, timeline.ranks());
    if (replicas.empty()) {
      if (whole) continue;
      if (start != nullptr) replicas = start->groups(tensor.id, Stage::kWeight, timeline.ranks());
      if (replicas.size() < 2 || !is_partition(replicas, timeline.ranks()))
        replicas = each_alone(timeline);
    } else if (all->size() > 1) {
      std::vector<Placement> placements;
      for (const auto& one : *all) placements.push_back(one.placement);
      across[tensor.id] = side_by_side(placements);
    }
    auto& of = groups.of[tensor.id];
    of.weight = of.gradient = std::move(replicas);
    if (const auto* gradient = declared(timeline.layout.gradients, tensor)) {
      of.gradient = replica_groups(*gradient, timeline.ranks());
      if (of.gradient.empty()) of.gradient = each_alone(timeline);
    }
  }
  // Everything begins alike on all of them.
  const bool one_model =
      start != nullptr && !across.empty() &&
      std::all_of(across.begin(), across.end(), [&](const auto& entry) {
        return !entry.second.empty() && begin_alike(*start, entry.first, entry.second);
      });
  for (const auto& [id, together] : across) {
    if (one_model) groups.of[id] = {together, together, PlacementSource::kInferred};
  }
  return one_model;
}

// The ranks on which it gets a gradient in some step.
std::set<int> trained_on(const Timeline& timeline, int id) {
  std::set<int> ranks;
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || !step.examined()) continue;
    for (const int rank : *step.here) {
      const auto usage = step.usage(rank, id);
      if (usage && (usage->used || usage->assigned)) ranks.insert(rank);
    }
  }
  return ranks;
}

// Ranks whose weights begin alike, and whether those that have it begin apart. Stages of a pipeline
// may each build the whole model: a copy that is never trained is no replica of one that is, and a
// rank that has none is alone.
std::pair<std::vector<Ranks>, bool> begin_together(const Timeline& timeline,
                                                   const TimelineStep& start, int id) {
  const auto alike = start.groups(id, Stage::kWeight, timeline.ranks());
  const auto trained = trained_on(timeline, id);
  std::set<int> missing(timeline.ranks().begin(), timeline.ranks().end());
  std::vector<Ranks> together;
  for (const auto& ranks : alike) {
    std::map<bool, Ranks> parts;
    for (const int rank : ranks) {
      parts[trained.contains(rank)].push_back(rank);
      missing.erase(rank);
    }
    for (auto& [is_trained, part] : parts) together.push_back(std::move(part));
  }
  const bool apart = together.size() > 1;
  for (const int rank : missing) together.push_back({rank});
  std::sort(together.begin(), together.end());
  return {std::move(together), apart};
}

// All elements of its first weights are one value, or its negative.
bool begins_constant(const TimelineStep& start, int id) {
  constexpr double kRounding = 1e-6;  // of a norm
  const auto seen = start.find(start.first_rank(), id, Stage::kWeight);
  if (!seen || seen->numel < 2) return false;
  const double if_constant = seen->max_abs * std::sqrt(static_cast<double>(seen->numel));
  return std::abs(seen->l2_norm - if_constant) <= kRounding * if_constant;
}

// As in a pipeline, whose other stages go backward from the gradient of their outputs.
bool only_some_compute_a_loss(const Timeline& timeline) {
  bool some = false, others = false;
  for (const int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    const bool loss = std::any_of(record->steps.begin(), record->steps.end(),
                                  [](const StepRecord& step) { return step.loss.has_value(); });
    (loss ? some : others) = true;
  }
  return some && others;
}

// What nobody declared, in a job whose ranks exchange activations. Where shards are DTensors, plain
// parameters are none.
void place_inferred(const Timeline& timeline, const TimelineStep* start, ReplicaGroups& groups) {
  if (timeline.layout.model_parallel.empty() || start == nullptr || timeline.replicas.size() > 1 ||
      !timeline.layout.replicated())
    return;
  std::vector<Undeclared> undeclared;
  std::vector<int> ids;
  const auto one_seed = experts_of_one_seed(timeline, start);
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || tensor.ddp_index || groups.of.contains(tensor.id) ||
        declared(timeline.layout.placements, tensor) != nullptr)
      continue;
    auto [alike, apart] = begin_together(timeline, *start, tensor.id);
    if (one_seed.contains(tensor.id)) alike = each_alone(timeline);
    undeclared.push_back({module_of(tensor), std::move(alike), tensor.sizes,
                          begins_constant(*start, tensor.id), apart});
    ids.push_back(tensor.id);
  }
  const auto replicas = timeline.layout.pipeline
                            ? infer_in_stages(undeclared, only_some_compute_a_loss(timeline))
                            : infer_replicas(undeclared);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!replicas[i].empty())
      groups.of[ids[i]] = {replicas[i], replicas[i], PlacementSource::kInferred};
  }
}

bool is_each_ranks_own(const ReplicaGroups::Of& of) {
  return std::all_of(of.weight.begin(), of.weight.end(),
                     [](const Ranks& ranks) { return ranks.size() == 1; });
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

bool exchanges_activations(const Timeline& timeline) {
  return std::any_of(timeline.ranks().begin(), timeline.ranks().end(), [&](int rank) {
    const auto* record = timeline.record(rank);
    return record != nullptr &&
           std::any_of(record->facts.begin(), record->facts.end(),
                       [](const Fact& fact) { return fact.subject == "activations"; });
  });
}

// Of a DeviceMesh of the program.
bool is_dimension(const Timeline& timeline, const std::vector<Ranks>& groups) {
  const std::set<Ranks> wanted(groups.begin(), groups.end());
  const auto& known = timeline.layout.dimensions;
  return std::any_of(known.begin(), known.end(), [&](const Dimension& dimension) {
    return std::set<Ranks>(dimension.groups.begin(), dimension.groups.end()) == wanted;
  });
}

// Of wrappers with different process groups each replicates over its own, if these are meant to
// hold parts of a layer, and begin apart.
void place_by_wrapper(const Timeline& timeline, const TimelineStep* start, ReplicaGroups& groups) {
  if (start == nullptr || !start->complete()) return;
  const bool exchanges = exchanges_activations(timeline);
  std::map<int, std::vector<const TensorInfo*>> wrappers;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && tensor.wrapper) wrappers[*tensor.wrapper].push_back(&tensor);
  }
  for (const auto& [wrapper, tensors] : wrappers) {
    const auto sets =
        wrappers.size() > 1 ? wrapper_groups(timeline, wrapper) : std::vector<Ranks>{};
    if (sets.size() < 2 || !(exchanges || is_dimension(timeline, sets))) continue;
    std::set<std::string> parts;
    for (const auto& ranks : sets) {
      std::string bits;
      for (const auto* tensor : tensors) {
        if (const auto seen = start->find(ranks.front(), tensor->id, Stage::kWeight))
          bits.append(seen->bits.begin(), seen->bits.end());
      }
      parts.insert(std::move(bits));
    }
    if (parts.size() != sets.size()) continue;
    for (const auto* tensor : tensors) groups.of[tensor->id] = {sets, sets};
  }
}

// What wrappers cover is replicated over their process groups.
void place_wrapped(Timeline& timeline, const std::vector<Ranks>& sets, ReplicaGroups& groups) {
  timeline.layout.model_parallel =
      "each wrapper's process group has only some of the ranks, and parameters are stated to be "
      "replicated across these groups";
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && tensor.wrapper) groups.of[tensor.id] = {sets, sets};
  }
}

// Which parameters are not compared with all ranks because these hold different parts of them.
void note_parts(Timeline& timeline) {
  std::map<std::string, std::vector<std::string>> by_source;
  std::set<std::string> known;
  for (const auto& tensor : timeline.tensors) known.insert(tensor.name);
  for (const auto& [name, all] : timeline.layout.placements) {
    if (!known.contains(name)) by_source[all.front().placement.source].push_back(name);
  }
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
  const bool modules =
      std::any_of(timeline.tensors.begin(), timeline.tensors.end(), [](const TensorInfo& tensor) {
        return tensor.kind == "parameter" && !is_in_no_module(tensor);
      });
  if (timeline.replicas.size() == 1) place_by_wrapper(timeline, start, *groups);
  const bool one_model = place_declared(timeline, start, *groups);
  if (one_model && timeline.layout.meshes_side_by_side) timeline.layout.model_parallel.clear();
  place_inferred(timeline, start, *groups);
  place_stated(timeline, *groups);
  timeline.place(groups);
  if (timeline.on_mesh()) timeline.dimensions = dimensions_of(timeline);
  timeline.rank_local = experts(timeline, start, *groups);
  for (const auto& [id, of] : groups->of) {
    if (is_each_ranks_own(of)) timeline.rank_local.insert(id);
  }
  timeline.updated_by_some = updated_by_some(timeline);
  if (const auto count = timeline.updated_by_some.size(); count > 0)
    timeline.notes.push_back(fmt::format(
        "{} parameter{} updated by the optimizers of some ranks only (a sharded optimizer), and "
        "compared before the next step, where every rank has the same",
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
    if (modules && is_in_no_module(tensor) && begins_apart(timeline, start, tensor.id))
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
