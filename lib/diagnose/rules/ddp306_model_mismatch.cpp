// SPDX-License-Identifier: BSD-3-Clause
// DDP306: the ranks' models have different parameters: number, order, names, shapes, dtypes.
//
// Another order alone is harmless where gradients are synchronized by name, so it counts only if a
// reducer pairs parameters by index, or if gradients differ.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

using ByName = std::map<std::string, const TensorInfo*>;

// Parameters of the wrapped models if there are wrappers: a rank may have other models outside
// them.
ByName parameters_by_name(const RankRecord& record) {
  const bool wrapped = std::any_of(record.tensors.begin(), record.tensors.end(),
                                   [](const TensorInfo& tensor) { return tensor.wrapper; });
  ByName parameters;
  for (const auto& tensor : record.tensors) {
    if (tensor.kind == "parameter" && (tensor.wrapper || !wrapped))
      parameters.emplace(tensor.name, &tensor);
  }
  return parameters;
}

bool same_kind(const TensorInfo* a, const TensorInfo* b) {
  return a->dtype == b->dtype && a->sizes == b->sizes && a->trainable == b->trainable;
}

std::string description(const TensorInfo* tensor, bool with_index) {
  if (tensor == nullptr) return "is missing";
  std::string sizes;
  for (const auto size : tensor->sizes) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  const std::string index =
      with_index && tensor->ddp_index ? fmt::format(" at index {}", *tensor->ddp_index) : "";
  return fmt::format("is {} [{}]{}{}", tensor->dtype, sizes, tensor->trainable ? "" : ", frozen",
                     index);
}

// The reducer pairs parameters by index: if the shapes are equal but the order is not, it averages
// unrelated gradients.
bool alike(const TensorInfo* a, const TensorInfo* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return same_kind(a, b) && a->ddp_index == b->ddp_index;
}

// The names of the record's parameters in the order of their models, of those that are in `known`.
// Models may be found in another order on each rank.
std::vector<std::string> order_of(const RankRecord& record, const ByName& known) {
  std::vector<std::string> names;
  for (const auto& tensor : record.tensors) {
    if (tensor.kind == "parameter" && known.contains(tensor.name)) names.push_back(tensor.name);
  }
  const auto model = [](const std::string& name) { return name.substr(0, name.find(':') + 1); };
  std::ranges::stable_sort(names, {}, model);
  return names;
}

std::optional<std::int64_t> first_step_apart(const Timeline& timeline) {
  for (const auto* step : complete_steps(timeline)) {
    if (!differing(timeline, *step, Stage::kGradient).empty()) return step->number;
  }
  return {};
}

// The same parameters, registered in another order, on ranks that average them by position.
std::vector<Finding> registered_in_another_order(const Timeline& timeline) {
  const auto* first = timeline.record(timeline.first_rank());
  const ByName reference = parameters_by_name(*first);
  const auto expected = order_of(*first, reference);
  const auto apart = first_step_apart(timeline);
  if (!apart) return {};
  Finding finding = finding_of(kModelMismatch);
  std::set<std::string> moved;
  std::string example;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    const auto here = order_of(*record, reference);
    if (here.size() != expected.size() ||
        !std::is_permutation(here.begin(), here.end(), expected.begin()))
      return {};
    bool other = false;
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (here[i] == expected[i]) continue;
      moved.insert({here[i], expected[i]});
      other = true;
      if (example.empty())
        example = fmt::format("parameter {} is {} on rank {} and {} on rank {}", i, expected[i],
                              timeline.first_rank(), here[i], rank);
    }
    if (other) finding.ranks.push_back(rank);
  }
  if (moved.empty()) return {};
  finding.ranks.insert(finding.ranks.begin(), timeline.first_rank());
  finding.first_step = apart;
  finding.where = where_stepped(timeline, apart);
  for (int id : timeline.trainable()) {
    if (moved.contains(timeline.tensors[static_cast<std::size_t>(id)].name))
      finding.parameters.push_back(parameter_of(timeline, id));
  }
  finding.evidence["kind"] = "order";
  finding.evidence["parameters_moved"] = moved.size();
  finding.message = fmt::format(
      "The ranks registered the same parameters in different orders: {}. What is averaged by "
      "position, as in a flat buffer or a loop over model.parameters(), mixes the gradients of {}.",
      example, list_of(finding.parameters));
  finding.prescription = {
      "Build the model in the same order on every rank: sort what it is built from, or let rank 0 "
      "decide and broadcast the decision.",
      ""};
  return {finding};
}

Verdict check_model_mismatch(const Timeline& timeline) {
  const auto* first = timeline.record(timeline.first_rank());
  if (first == nullptr)
    return Undecidable{fmt::format("rank {} has no record", timeline.first_rank())};
  const ByName reference = parameters_by_name(*first);
  std::set<int> ranks;
  std::map<std::string, std::string> differences;  // by name
  std::set<std::string> other_kind;                // of these, not only the index
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || record->tensors.empty() || first->tensors.empty()) continue;
    const ByName here = parameters_by_name(*record);
    const auto compare = [&](const std::string& name) {
      const auto a = reference.find(name);
      const auto b = here.find(name);
      const TensorInfo* on_first = a == reference.end() ? nullptr : a->second;
      const TensorInfo* on_rank = b == here.end() ? nullptr : b->second;
      const bool sharded = timeline.layout.placements.contains(name);
      if (alike(on_first, on_rank) || (sharded && on_first != nullptr && on_rank != nullptr))
        return;
      ranks.insert(rank);
      const bool moved = on_first != nullptr && on_rank != nullptr && same_kind(on_first, on_rank);
      if (!moved) other_kind.insert(name);
      differences.emplace(name, fmt::format("{} {} on rank {} and {} on rank {}", name,
                                            description(on_first, moved), timeline.first_rank(),
                                            description(on_rank, moved), rank));
    };
    for (const auto& [name, tensor] : reference) compare(name);
    for (const auto& [name, tensor] : here) compare(name);
  }
  if (ranks.empty()) return registered_in_another_order(timeline);
  // Report the parameters that are missing or differ in kind. A parameter that only has another
  // index is a consequence of those.
  std::vector<std::string> names;
  for (const auto& [name, text] : differences) {
    if (text.find("missing") != std::string::npos) names.push_back(name);
  }
  if (names.empty()) names.assign(other_kind.begin(), other_kind.end());
  if (names.empty()) {
    for (const auto& [name, text] : differences) names.push_back(name);
  }
  const bool frozen = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return differences.at(name).find(", frozen") != std::string::npos;
  });
  Finding finding = finding_of(kModelMismatch);
  finding.where = where(timeline, "wrap");
  if (!finding.where) finding.where = where_stepped(timeline);
  finding.ranks.assign(ranks.begin(), ranks.end());
  for (const auto& name : names) finding.parameters.push_back({name, {}});
  finding.evidence["differences"] = differences.size();
  finding.evidence["parameters_by_rank"] = nlohmann::ordered_json::array();
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    finding.evidence["parameters_by_rank"].push_back(
        record == nullptr ? 0 : parameters_by_name(*record).size());
  }
  finding.message =
      fmt::format("The ranks do not have the same model: {}{}.", differences.at(names.front()),
                  names.size() > 1 ? fmt::format(", and {} more", names.size() - 1) : "");
  finding.prescription = {
      "Build the model from the same configuration on every rank, not from each rank's own data: "
      "let rank 0 decide and broadcast the decision.",
      ""};
  if (frozen)
    finding.prescription.text =
        "Set requires_grad of the same parameters on every rank, before the model is wrapped.";
  return std::vector{finding};
}

}  // namespace

const Rule kModelMismatch = {.code = "DDP306",
                             .name = "model-mismatch",
                             .severity = Severity::kError,
                             .headline = "the ranks' models have different parameters",
                             .check = check_model_mismatch,
                             .needs = {.ranks = 2},
                             .on_mesh = OnMesh::kNotChecked,
                             // Ranks with different models differ in everything else.
                             .explains = {{&kGradientsOutOfSync},
                                          {&kPartialSync},
                                          {&kRankDependentManualSync},
                                          {&kRankDependentGraph},
                                          {&kWeightsDrift},
                                          {&kInitialWeightsDiffer},
                                          {&kStalledRank},
                                          {&kCollectiveMismatch},
                                          {&kRankCrashed}}};

}  // namespace ddp_doctor
