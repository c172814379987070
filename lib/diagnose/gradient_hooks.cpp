// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/gradient_hooks.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace ddp_doctor {
namespace {

constexpr std::string_view kSubject = "gradient hook ";
constexpr double kSameNorm = 1e-3;

// What a hook made of one gradient.
struct HookChange {
  int parameter = 0;
  int rank = 0;
  std::int64_t step = 0;
  double before = 0.0, after = 0.0;  // norms; only `after` if elements were clamped: to this size
};

std::optional<int> parameter_of_reducer(const Timeline& timeline, std::string_view name) {
  for (const auto& tensor : timeline.tensors) {
    if (tensor.name == name && tensor.ddp_index) return tensor.id;
  }
  return {};
}

std::vector<HookChange> changes(const Timeline& timeline, std::string_view kind) {
  std::vector<HookChange> all;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    for (const auto& fact : record->facts) {
      if (fact.key != kind || !fact.subject.starts_with(kSubject)) continue;
      const auto name = std::string_view(fact.subject).substr(kSubject.size());
      const auto id = parameter_of_reducer(timeline, name);
      const auto value = nlohmann::json::parse(fact.value, nullptr, false);
      if (!id || value.is_discarded()) continue;
      HookChange change{*id, rank, fact.step, 0.0, 0.0};
      if (value.is_array() && value.size() == 2) {
        change.before = value[0].get<double>();
        change.after = value[1].get<double>();
      } else if (value.is_number()) {
        change.after = value.get<double>();
      }
      all.push_back(change);
    }
  }
  return all;
}

bool same_norm(double a, double b) { return std::abs(a - b) <= kSameNorm * std::max(a, b); }

std::optional<HookClipping> summary(const std::vector<HookChange>& found, bool by_norm) {
  if (found.empty()) return {};
  HookClipping clipping;
  clipping.by_norm = by_norm;
  clipping.limit = found.front().after;
  clipping.first_step = found.front().step;
  for (const auto& change : found) {
    clipping.parameters.insert(change.parameter);
    clipping.ranks.insert(change.rank);
    clipping.first_step = std::min(clipping.first_step, change.step);
  }
  return clipping;
}

}  // namespace

std::optional<HookClipping> clipping_in_gradient_hooks(const Timeline& timeline) {
  if (auto clamped = summary(changes(timeline, "clamped"), false)) return clamped;
  // Gradients of different norms that have the same norm afterwards; a constant factor makes none.
  const auto scaled = changes(timeline, "scaled");
  for (const auto& one : scaled) {
    std::vector<HookChange> alike;
    std::copy_if(scaled.begin(), scaled.end(), std::back_inserter(alike),
                 [&](const HookChange& other) { return same_norm(other.after, one.after); });
    const bool apart = std::any_of(alike.begin(), alike.end(), [&](const HookChange& other) {
      return !same_norm(other.before, one.before);
    });
    if (apart) return summary(alike, true);
  }
  return {};
}

}  // namespace ddp_doctor
