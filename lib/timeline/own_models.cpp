// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/own_models.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace ddp_doctor {
namespace {

bool is_comparable(const TimelineStep& step) {
  return step.number > 0 && step.complete() && step.examined();
}

// No two ranks ever step with the same gradient of it.
bool never_reduced(const Timeline& timeline, int id) {
  return std::all_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
    if (!is_comparable(step)) return true;
    const auto alike = step.groups(id, Stage::kGradient, timeline.ranks());
    return alike.empty() || alike.size() == timeline.ranks().size();
  });
}

// In some step all ranks have the same gradient of it, that is not 0.
bool is_reduced(const Timeline& timeline, int id) {
  return std::any_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
    if (!is_comparable(step)) return false;
    const auto seen = step.find(step.first_rank(), id, Stage::kGradient);
    return seen && seen->max_abs > 0.0 &&
           step.groups(id, Stage::kGradient, timeline.ranks()).size() == 1;
  });
}

// On all ranks; a constant, such as a bias of zeros, never does.
bool begins_apart(const Timeline& timeline, const TimelineStep& start, int id) {
  return start.groups(id, Stage::kWeight, timeline.ranks()).size() == timeline.ranks().size();
}

std::vector<const TensorInfo*> trained(const Timeline& timeline) {
  std::vector<const TensorInfo*> tensors;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && tensor.trainable) tensors.push_back(&tensor);
  }
  return tensors;
}

void place_alone(const Timeline& timeline, int id, ReplicaGroups& groups) {
  const auto alone = each_alone(timeline.ranks());
  groups.of[id] = {alone, alone, PlacementSource::kInferred};
}

std::string by_size(const Timeline& timeline, ReplicaGroups& groups) {
  std::map<std::string, std::set<std::int64_t>> sizes;
  for (const int rank : timeline.ranks()) {
    for (const auto& tensor : timeline.record(rank)->tensors) {
      if (tensor.kind == "parameter") sizes[tensor.name].insert(tensor.numel);
    }
  }
  std::string example;
  for (const auto* tensor : trained(timeline)) {
    if (sizes[tensor->name].size() < 2) continue;
    place_alone(timeline, tensor->id, groups);
    if (example.empty()) example = tensor->name;
  }
  if (example.empty()) return {};
  // Where ranks have layers of their own, one that begins alike may be another.
  for (const auto* tensor : trained(timeline)) {
    if (!groups.of.contains(tensor->id) && never_reduced(timeline, tensor->id))
      place_alone(timeline, tensor->id, groups);
  }
  return example + " has not the same size on every rank, and the ranks train on";
}

std::string model_of(const TensorInfo& tensor) {
  return tensor.name.substr(0, tensor.name.size() - name_in_model(tensor.name).size());
}

struct Model {
  std::vector<int> ids;
  bool apart = false;    // something of it begins apart
  bool own = true;       // nothing of it is ever reduced
  bool reduced = false;  // something is
};

std::string beside_another(const Timeline& timeline, const TimelineStep& start,
                           ReplicaGroups& groups) {
  std::map<std::string, Model> models;
  for (const auto* tensor : trained(timeline)) {
    auto& model = models[model_of(*tensor)];
    model.ids.push_back(tensor->id);
    model.apart = model.apart || begins_apart(timeline, start, tensor->id);
    model.own = model.own && never_reduced(timeline, tensor->id);
    model.reduced = model.reduced || is_reduced(timeline, tensor->id);
  }
  const bool some = std::any_of(models.begin(), models.end(), [](const auto& entry) {
    return entry.second.reduced && !entry.second.apart;
  });
  if (!some) return {};
  std::string found;
  for (const auto& [name, model] : models) {
    if (!model.apart || !model.own) continue;
    for (const int id : model.ids) place_alone(timeline, id, groups);
    found = name.substr(0, name.find(':'));
  }
  if (found.empty()) return {};
  return found + " begins apart on the ranks and nothing is reduced of it, while another model is";
}

// Those of the first optimizer, in its first step.
bool hyper_parameters_differ(const Timeline& timeline) {
  std::set<std::string> seen;
  for (const int rank : timeline.ranks()) {
    const auto* groups = timeline.fact(rank, "optimizer 0", "groups", 1);
    if (groups != nullptr) seen.insert(groups->value);
  }
  return seen.size() > 1;
}

std::string population(const Timeline& timeline, const TimelineStep& start, ReplicaGroups& groups) {
  const auto tensors = trained(timeline);
  const auto own = [&](const TensorInfo* tensor) { return never_reduced(timeline, tensor->id); };
  const auto apart = [&](const TensorInfo* tensor) {
    return begins_apart(timeline, start, tensor->id);
  };
  if (!hyper_parameters_differ(timeline) || !std::all_of(tensors.begin(), tensors.end(), own) ||
      !std::any_of(tensors.begin(), tensors.end(), apart))
    return {};
  for (const auto* tensor : tensors) place_alone(timeline, tensor->id, groups);
  return "the ranks begin apart, with other hyper-parameters, and reduce no gradient: each may "
         "train a model of its own";
}

}  // namespace

std::string place_own_models(const Timeline& timeline, const TimelineStep* start,
                             ReplicaGroups& groups) {
  const auto stepped = [](const TimelineStep& step) { return step.number > 0 && step.complete(); };
  if (start == nullptr || timeline.has_wrapper() || !timeline.layout.placements.empty() ||
      timeline.ranks().size() < 2 ||
      std::none_of(timeline.steps.begin(), timeline.steps.end(), stepped) ||
      std::any_of(timeline.ranks().begin(), timeline.ranks().end(),
                  [&](int rank) { return timeline.record(rank) == nullptr; }))
    return {};
  auto found = by_size(timeline, groups);
  if (found.empty()) found = beside_another(timeline, *start, groups);
  return found.empty() ? population(timeline, *start, groups) : found;
}

}  // namespace ddp_doctor
