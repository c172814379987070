// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/gradient_hooks.h"

#include <algorithm>
#include <cmath>
#include <map>
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

std::vector<HookChange> changes(const Timeline& timeline, std::string_view kind) {
  std::map<std::string_view, int> of_reducers;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.ddp_index) of_reducers.emplace(tensor.name, tensor.id);
  }
  std::vector<HookChange> all;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    for (const auto& fact : record->facts) {
      if (fact.key != kind || !fact.subject.starts_with(kSubject)) continue;
      const auto id = of_reducers.find(std::string_view(fact.subject).substr(kSubject.size()));
      const auto value = nlohmann::json::parse(fact.value, nullptr, false);
      if (id == of_reducers.end() || value.is_discarded()) continue;
      HookChange change{id->second, rank, fact.step, 0.0, 0.0};
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
  auto scaled = changes(timeline, "scaled");
  std::sort(scaled.begin(), scaled.end(),
            [](const HookChange& a, const HookChange& b) { return a.after < b.after; });
  for (auto first = scaled.begin(); first != scaled.end();) {
    const auto last = std::find_if(first, scaled.end(), [&](const HookChange& other) {
      return !same_norm(other.after, first->after);
    });
    const bool apart = std::any_of(first, last, [&](const HookChange& other) {
      return !same_norm(other.before, first->before);
    });
    if (apart) return summary({first, last}, true);
    first = last;
  }
  return {};
}

}  // namespace ddp_doctor
