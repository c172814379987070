// SPDX-License-Identifier: BSD-3-Clause
// DDP302: replicas differ before the first optimizer step.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/rank_local.h"

namespace ddp_doctor {
namespace {

// No rank ever got a gradient for any of them: copies that are not the trained model.
bool untrained(const Timeline& timeline, const std::vector<int>& ids) {
  const auto steps = complete_steps(timeline);
  return !steps.empty() && std::all_of(steps.begin(), steps.end(), [&](const TimelineStep* step) {
    return std::all_of(ids.begin(), ids.end(), [&](int id) {
      const auto users = step->distinct_users();
      return std::none_of(users.begin(), users.end(), [&](int rank) {
        const auto usage = step->usage(rank, id);
        return usage && usage->used;
      });
    });
  });
}

// A wrapper of all ranks broadcast these weights, so something changed them after it was
// constructed.
bool broadcast_by_wrapper(const Timeline& timeline, const std::vector<int>& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](int id) {
    const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
    if (!tensor.ddp_index || !tensor.wrapper) return false;
    const std::string wrapper = fmt::format("wrapper {}", *tensor.wrapper);
    const auto* ranks = timeline.fact(timeline.first_rank(), wrapper, "ranks");
    return ranks != nullptr && nlohmann::json::parse(ranks->value) == timeline.ranks() &&
           timeline.fact(timeline.first_rank(), wrapper, "init_sync") == nullptr;
  });
}

// The ranks that called load_state_dict on a wrapped module before the first step.
std::vector<int> loaded_after_wrapping(const Timeline& timeline) {
  std::vector<int> ranks;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    if (std::any_of(record->facts.begin(), record->facts.end(), [](const Fact& fact) {
          return fact.is("wrapper", "loaded") && fact.step <= 1;
        }))
      ranks.push_back(rank);
  }
  return ranks;
}

void blame_change_after_wrapping(const Timeline& timeline, const std::string& size,
                                 Finding& finding) {
  const auto loaded = loaded_after_wrapping(timeline);
  finding.evidence["kind"] = "after-wrapping";
  std::string what = "something changed them afterwards";
  if (!loaded.empty()) {
    finding.where = where(timeline, "load_state_dict 1");
    finding.evidence["loaded_on"] = loaded;
    what = fmt::format("load_state_dict changed them afterwards, on {}",
                       loaded == timeline.ranks() ? "every rank, from different states"
                                                  : ranks_of(loaded) + " only");
    if (loaded != timeline.ranks()) finding.ranks = loaded;
  } else {
    finding.where = where(timeline, "wrap");
  }
  finding.message = fmt::format(
      "Before the first step the weights of {} differ across ranks{}, although "
      "DistributedDataParallel gave every rank those of rank 0 when it was constructed: {}.",
      list_of(finding.parameters), size, what);
  finding.prescription = {
      loaded.empty() ? "Change weights before the model is wrapped, or alike on every rank."
                     : "Load weights before the model is wrapped, or the same file on every rank.",
      "broadcast-init"};
}

// The module that holds it directly, "" for the model itself; itself where no module does.
std::string owner_of(const TensorInfo& tensor) {
  if (is_in_no_module(tensor)) return tensor.name;
  const auto dot = tensor.name.rfind('.');
  return dot == std::string::npos ? "" : tensor.name.substr(0, dot);
}

// Drawn at random on every rank alike: no constant, such as a bias of zeros.
bool begins_alike_at_random(const TimelineStep& start, int id) {
  const auto seen = start.sample(start.first_rank(), id, Stage::kWeight);
  return start.groups(id, Stage::kWeight, *start.here).size() == 1 && seen &&
         std::any_of(seen->values.begin(), seen->values.end(),
                     [&](double value) { return value != seen->values[0]; });
}

// How far its gradients point the same way on all ranks: the smallest cosine with the first rank's;
// 0 of few values.
double likeness(const Timeline& timeline, const std::vector<const TimelineStep*>& steps, int id) {
  constexpr std::size_t kMinValues = 16;
  double smallest = 1.0;
  for (const int rank : timeline.ranks()) {
    double both = 0.0;
    double mine = 0.0;
    double first = 0.0;
    std::size_t values = 0;
    for (const auto* step : steps) {
      const auto a = step->sample(step->first_rank(), id, Stage::kGradient);
      const auto b = step->sample(rank, id, Stage::kGradient);
      if (!a || !b || a->values.size() != b->values.size()) continue;
      for (std::size_t i = 0; i < a->values.size(); ++i) {
        both += a->values[i] * b->values[i];
        first += a->values[i] * a->values[i];
        mine += b->values[i] * b->values[i];
        ++values;
      }
    }
    const double length = std::sqrt(first * mine);
    smallest = std::min(smallest, values < kMinValues || length == 0.0 ? 0.0 : both / length);
  }
  return smallest;
}

// As those of replicas with other weights do. Those of the parts of a layer have nothing in common.
bool gradients_resemble(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                        int id) {
  return likeness(timeline, steps, id) > 0.9;
}

// They differ by a factor, as clipping by each rank's own norm leaves them.
bool gradients_are_scaled(const Timeline& timeline, const TimelineStep& step, int id) {
  return likeness(timeline, {&step}, id) > 1.0 - 1e-6;
}

// Then what begins apart are parts of what the ranks computed together.
bool same_loss_everywhere(const TimelineStep& step) {
  const auto records = step.records();
  return std::all_of(records.begin(), records.end(), [&](const StepRecord* record) {
    return record->loss.has_value() && record->loss == records.front()->loss;
  });
}

// In a job whose ranks exchange activations, where nobody declared anything: parameters that begin
// apart are taken for shards. If a parameter beside one in the same module begins alike and gets
// other gradients on each rank, and the program means to reduce none, then activations differ that
// should not: the one that begins apart was meant to be a replica.
std::vector<int> mistaken_for_shards(const Timeline& timeline, const TimelineStep& start) {
  const auto steps = complete_steps(timeline);
  if (timeline.layout.model_parallel.empty() || steps.empty() ||
      same_loss_everywhere(*steps.front()))
    return {};
  const bool reduces = std::any_of(steps.begin(), steps.end(), [&](const auto* step) {
    return !calls_before_step(*step, step->first_rank()).empty();
  });
  if (reduces) return {};
  std::set<std::string> owners;
  for (const int id : differing(timeline, *steps.front(), Stage::kGradient)) {
    if (!timeline.placed().of.contains(id) && begins_alike_at_random(start, id) &&
        !gradients_are_scaled(timeline, *steps.front(), id))
      owners.insert(owner_of(timeline.tensors[static_cast<std::size_t>(id)]));
  }
  if (owners.empty()) return {};
  std::vector<int> ids;
  for (const auto& [id, of] : timeline.placed().of) {
    const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
    if (of.source == PlacementSource::kInferred &&
        start.groups(id, Stage::kWeight, *start.here).size() > 1 &&
        (owners.contains(owner_of(tensor)) || gradients_resemble(timeline, steps, id)))
      ids.push_back(id);
  }
  return ids;
}

// The class of a model that runs, and that no wrapper and no optimizer holds (a teacher, a target
// network): on some rank it is a copy of the one that is trained, on others it is not.
std::optional<std::string> copy_on_some_ranks(const Timeline& timeline) {
  if (timeline.on_mesh()) return {};
  std::map<std::string, std::map<int, std::set<std::string>>> same;  // by class and rank
  for (const int rank : timeline.ranks()) {
    if (const auto* record = timeline.record(rank)) {
      for (const auto& fact : record->facts) {
        if (fact.subject == "copy") same[fact.key][rank].insert(fact.value);
      }
    }
  }
  for (const auto& [model, by_rank] : same) {
    const bool everywhere = by_rank.size() == timeline.ranks().size();
    const auto& first = by_rank.begin()->second;
    if (everywhere &&
        std::ranges::any_of(by_rank, [&](const auto& of_rank) { return of_rank.second != first; }))
      return model;
  }
  return {};
}

std::vector<Finding> copies_differ(const Timeline& timeline) {
  const auto model = copy_on_some_ranks(timeline);
  if (!model) return {};
  Finding finding = finding_of(kInitialWeightsDiffer);
  finding.certainty = Certainty::kLikely;
  finding.ranks = timeline.ranks();
  finding.first_step = 1;
  finding.where = where(timeline, "wrap");
  finding.evidence["kind"] = "copy";
  finding.evidence["model"] = *model;
  finding.message = fmt::format(
      "Before the first step {}, which the program runs too (a teacher, a target network), has the "
      "weights of the trained model on some ranks only: it was copied before all ranks had the "
      "same weights, and no wrapper and no optimizer holds it.",
      *model);
  finding.prescription = {
      "Make the copy after the model is wrapped, from model.module, or use the same seed on every "
      "rank until the copy is made.",
      ""};
  return {finding};
}

Verdict check_initial_weights_differ(const Timeline& timeline) {
  const auto* start = timeline.step(0);
  if (start == nullptr || !start->complete())
    return Undecidable{"the weights before step 1 were not recorded on every rank"};

  std::vector<int> ids;
  std::int64_t first_step = 1;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || timeline.rank_local.contains(tensor.id)) continue;
    const auto groups = start->groups(tensor.id, Stage::kWeight);
    std::size_t members = 0;
    for (const auto& ranks : groups) members += ranks.size();
    if (members < start->expected() && tensor.trainable) {
      const auto later = begins_apart_later(timeline, tensor.id);
      if (!later) continue;
      first_step = *later;
    } else if (groups.size() < 2) {
      continue;
    }
    ids.push_back(tensor.id);
  }
  const auto& placed = timeline.placed().of;
  const bool known = std::all_of(ids.begin(), ids.end(), [&](int id) {
    const auto of = placed.find(id);
    return of != placed.end() && of->second.source == PlacementSource::kStated;
  });
  const bool likely = ids.empty() || (!timeline.layout.model_parallel.empty() && !known);
  if (ids.empty()) ids = mistaken_for_shards(timeline, *start);
  if (ids.empty()) return copies_differ(timeline);
  Finding finding = finding_of(kInitialWeightsDiffer);
  if (likely) finding.certainty = Certainty::kLikely;
  finding.ranks = timeline.ranks();
  finding.first_step = first_step;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.parameters = parameters_of(timeline, ids);
  finding.evidence["parameters_apart"] = ids.size();
  std::string size;
  if (start->weight_drift && *start->weight_drift > 0.0) {
    finding.evidence["max_abs_difference"] = *start->weight_drift;
    size = fmt::format(" (max |W_i - W_j| = {:.3e})", *start->weight_drift);
  }
  if (broadcast_by_wrapper(timeline, ids)) {
    blame_change_after_wrapping(timeline, size, finding);
    return std::vector{finding};
  }
  if (untrained(timeline, ids)) finding.evidence["kind"] = "untrained";
  if (first_step > 1) finding.evidence["kind"] = "late";
  finding.message = fmt::format(
      "Before {} the weights of {} differ across ranks{}: averaging gradients cannot make them "
      "equal.",
      first_step > 1 ? fmt::format("step {}", first_step) : "the first step",
      list_of(finding.parameters), size);
  if (timeline.on_mesh() || !timeline.layout.model_parallel.empty()) {
    // Rank 0's weights would overwrite the parts of the others.
    finding.prescription = {
        "Give these parameters, and no others, the same values on all ranks that hold the same "
        "part of them: draw them from one seed, load them on every rank, or broadcast them (of a "
        "DTensor "
        "its local tensor) within each of these groups of ranks.",
        ""};
    return std::vector{finding};
  }
  finding.prescription = {
      "Broadcast all weights and buffers from rank 0 before the first step "
      "(DistributedDataParallel does this), or use the same seed on every rank before the model is "
      "constructed.",
      "ddp",
      {},
      {"broadcast-init"}};
  return std::vector{finding};
}

}  // namespace

const Rule kInitialWeightsDiffer = {.code = "DDP302",
                                    .name = "initial-weights-differ",
                                    .severity = Severity::kError,
                                    .headline = "replicas differ before the first step",
                                    .check = check_initial_weights_differ,
                                    .needs = {.ranks = 2},
                                    .lasting = true,
                                    .on_mesh = OnMesh::kHolds,
                                    // Replicas that start different stay different.
                                    .explains = {{&kWeightsDrift}, {&kNotReducedOverDimension}}};

}  // namespace ddp_doctor
