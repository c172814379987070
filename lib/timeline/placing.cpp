// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/placing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lib/placement/infer.h"
#include "lib/timeline/rank_local.h"
#include "lib/timeline/replica_sets.h"

namespace ddp_doctor {
namespace {

const std::vector<Declared>* declared(const std::map<std::string, std::vector<Declared>>& all,
                                      const TensorInfo& tensor) {
  const auto found = all.find(tensor.name);
  return found == all.end() ? nullptr : &found->second;
}

bool begin_alike(const TimelineStep& start, int tensor, const std::vector<Ranks>& groups) {
  return std::all_of(groups.begin(), groups.end(), [&](const Ranks& ranks) {
    const auto alike = start.groups(tensor, Stage::kWeight, ranks);
    return alike.size() == 1 && alike.front().size() == ranks.size();
  });
}

}  // namespace

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
        replicas = each_alone(timeline.ranks());
    } else if (all->size() > 1) {
      std::vector<Placement> placements;
      for (const auto& one : *all) placements.push_back(one.placement);
      across[tensor.id] = side_by_side(placements);
    }
    auto& of = groups.of[tensor.id];
    of.weight = of.gradient = std::move(replicas);
    if (const auto* gradient = declared(timeline.layout.gradients, tensor)) {
      of.gradient = replica_groups(*gradient, timeline.ranks());
      if (of.gradient.empty()) of.gradient = each_alone(timeline.ranks());
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

namespace {

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

constexpr const char* kNamesOfEmbeddings[] = {"emb", "wte", "word", "tok", "vocab"};

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

// The module that holds it directly, or a parameter of the model itself. A model with a weight and
// a bias is one layer.
std::string module_of(const TensorInfo& tensor) {
  const auto& name = tensor.name;
  const auto at = name_in_model(name);
  const auto dot = name.rfind('.');
  if (dot != std::string::npos) return name.substr(0, dot);
  return at == "weight" || at == "bias" ? name.substr(0, name.size() - at.size()) : name;
}

bool is_named_embedding(const TensorInfo& tensor) {
  return std::any_of(std::begin(kNamesOfEmbeddings), std::end(kNamesOfEmbeddings),
                     [&](const char* word) { return tensor.name.find(word) != std::string::npos; });
}

}  // namespace

std::string works_together(const Timeline& timeline, const TimelineStep* start) {
  if (start == nullptr || !start->complete() || timeline.has_wrapper()) return {};
  bool forward = false, splits_softmax = false;
  for (const int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || reduces_over_all(*record)) return {};
    for (const auto& fact : record->facts)
      forward = forward || (fact.subject == "activations" && fact.key == "forward");
    for (const auto& step : record->steps) {
      // The largest logit of each sample, over all classes: each rank has some of them.
      splits_softmax = splits_softmax || std::ranges::any_of(step.calls, [](const auto& call) {
                         return call.moment == "forward" && call.reduce == "max" && call.numel > 1;
                       });
    }
  }
  bool alike = false, apart = false;  // drawn at random
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || begins_constant(*start, tensor.id)) continue;
    const auto groups = start->groups(tensor.id, Stage::kWeight, timeline.ranks()).size();
    alike = alike || groups == 1;
    apart = apart || groups > 1;
  }
  if (!forward || !apart || !(alike || splits_softmax)) return {};
  return splits_softmax ? "ranks compute the softmax over classes that each has some of"
                        : "ranks exchange activations in forward passes, and some weights begin "
                          "apart, as in tensor parallelism";
}

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
    if (one_seed.contains(tensor.id)) alike = each_alone(timeline.ranks());
    undeclared.push_back({module_of(tensor), std::move(alike), tensor.sizes,
                          begins_constant(*start, tensor.id), apart,
                          tensor.sizes.size() == 2 && is_named_embedding(tensor)});
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

namespace {

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

}  // namespace

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

void place_wrapped(Timeline& timeline, const std::vector<Ranks>& sets, ReplicaGroups& groups) {
  timeline.layout.model_parallel =
      "each wrapper's process group has only some of the ranks, and parameters are stated to be "
      "replicated across these groups";
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && tensor.wrapper) groups.of[tensor.id] = {sets, sets};
  }
}

}  // namespace ddp_doctor
