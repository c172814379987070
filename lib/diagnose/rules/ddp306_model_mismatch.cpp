// SPDX-License-Identifier: BSD-3-Clause
// DDP306: the ranks' models have different parameters: number, order, names, shapes, dtypes.

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

Verdict check_model_mismatch(const Timeline& timeline) {
  if (all_ranks(timeline).size() < 2)
    return Undecidable{"there is only one rank, nothing to compare"};
  const auto* first = timeline.record(timeline.first_rank());
  if (first == nullptr)
    return Undecidable{fmt::format("rank {} has no record", timeline.first_rank())};
  const ByName reference = parameters_by_name(*first);
  std::set<int> ranks;
  std::map<std::string, std::string> differences;  // by name
  for (int rank : all_ranks(timeline)) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || record->tensors.empty() || first->tensors.empty()) continue;
    const ByName here = parameters_by_name(*record);
    const auto compare = [&](const std::string& name) {
      const auto a = reference.find(name);
      const auto b = here.find(name);
      const TensorInfo* on_first = a == reference.end() ? nullptr : a->second;
      const TensorInfo* on_rank = b == here.end() ? nullptr : b->second;
      if (alike(on_first, on_rank)) return;
      ranks.insert(rank);
      const bool moved = on_first != nullptr && on_rank != nullptr && same_kind(on_first, on_rank);
      differences.emplace(name, fmt::format("{} {} on rank {} and {} on rank {}", name,
                                            description(on_first, moved), timeline.first_rank(),
                                            description(on_rank, moved), rank));
    };
    for (const auto& [name, tensor] : reference) compare(name);
    for (const auto& [name, tensor] : here) compare(name);
  }
  if (ranks.empty()) return std::vector<Finding>{};
  // Report the parameters that are missing or differ in kind. A parameter that only has another
  // index is a consequence of those.
  std::vector<std::string> names;
  for (const auto& [name, text] : differences) {
    if (text.find("missing") != std::string::npos) names.push_back(name);
  }
  if (names.empty()) {
    for (const auto& [name, text] : differences) names.push_back(name);
  }
  Finding finding = finding_of(kModelMismatch);
  finding.where = where(timeline, timeline.site("wrap") != nullptr ? "wrap" : "step");
  finding.ranks.assign(ranks.begin(), ranks.end());
  for (const auto& name : names) finding.parameters.push_back({name, {}});
  finding.evidence["differences"] = differences.size();
  finding.evidence["parameters_by_rank"] = nlohmann::ordered_json::array();
  for (int rank : all_ranks(timeline)) {
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
  return std::vector{finding};
}

}  // namespace

const Rule kModelMismatch = {"DDP306", "model-mismatch", Severity::kError,
                             "the ranks' models have different parameters", check_model_mismatch};

}  // namespace ddp_doctor
