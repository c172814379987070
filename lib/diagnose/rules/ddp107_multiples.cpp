// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/rules/ddp107_multiples.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

std::optional<Sample> synchronized(const TimelineStep& step, int rank, int id, bool by_hand) {
  return step.sample(rank, id, by_hand ? Stage::kGradient : Stage::kReducedGradient);
}

// The input of the synchronization. For a hand-written one: the gradient right after the backward
// and the reducer, if any, because the program may divide before the all-reduce or after it.
std::optional<Sample> local(const TimelineStep& step, int rank, int id, bool by_hand) {
  auto reduced = by_hand ? step.sample(rank, id, Stage::kReducedGradient) : std::nullopt;
  return reduced ? reduced : step.sample(rank, id, Stage::kLocalGradient);
}

// What each rank has for itself is not synchronized: an expert that got no token has a zero
// gradient, and the other one's is twice their mean.
std::vector<int> on_several_ranks(const Timeline& timeline) {
  std::vector<int> ids = timeline.trainable();
  std::erase_if(ids, [&](int id) { return timeline.rank_local.contains(id); });
  return ids;
}

}  // namespace

std::vector<Multiple> multiples_of(const Timeline& timeline, const TimelineStep& step,
                                   const SampleOf& result, const SampleOf& own) {
  struct Sums {
    std::vector<double> after, mean, magnitude;
    std::vector<bool> everywhere;
    int id = 0;
    bool all = true;
  };
  std::vector<Sums> sums;
  for (int id : on_several_ranks(timeline)) {
    const auto after = result(timeline.first_rank(), id);
    if (!after) continue;
    const std::size_t count = after->values.size();
    const std::vector<double> zeros(count, 0.0);
    sums.push_back({{after->values.begin(), after->values.end()},
                    zeros,
                    zeros,
                    std::vector<bool>(count, true),
                    id});
  }
  // Rank by rank: a rank's samples of all tensors are stored together.
  for (int rank : timeline.ranks()) {
    for (auto& [after, mean, magnitude, everywhere, id, all] : sums) {
      if (!all) continue;
      const auto before = own(rank, id);
      all = before && before->values.size() == mean.size();
      for (std::size_t i = 0; all && i < mean.size(); ++i) {
        mean[i] += before->values[i] / static_cast<double>(step.expected());
        magnitude[i] = std::max(magnitude[i], std::abs(before->values[i]));
        if (before->values[i] == 0.0) everywhere[i] = false;
      }
    }
  }
  struct Pair {
    int id;
    double mean, after;
    bool everywhere;
  };
  std::vector<Pair> pairs;
  double largest = 0.0;
  for (const auto& [after, mean, magnitude, everywhere, id, all] : sums) {
    if (!all) continue;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      // Where the ranks cancel each other the quotient is meaningless.
      if (std::abs(mean[i]) < 0.3 * magnitude[i] || !std::isfinite(mean[i])) continue;
      pairs.push_back({id, mean[i], after[i], everywhere[i]});
      largest = std::max(largest, std::abs(mean[i]));
    }
  }
  std::vector<Multiple> multiples;
  for (const auto& [id, mean, after, everywhere] : pairs) {
    if (std::abs(mean) > 1e-3 * largest) multiples.push_back({id, after / mean, everywhere});
  }
  return multiples;
}

std::vector<Multiple> multiples_in(const Timeline& timeline, const TimelineStep& step,
                                   bool by_hand) {
  return multiples_of(
      timeline, step, [&](int rank, int id) { return synchronized(step, rank, id, by_hand); },
      [&](int rank, int id) { return local(step, rank, id, by_hand); });
}

std::optional<double> factor_of(const std::vector<Multiple>& multiples) {
  if (multiples.size() < kMinValues) return {};
  std::vector<double> factors;
  for (const auto& multiple : multiples) factors.push_back(multiple.factor);
  std::nth_element(factors.begin(),
                   factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2),
                   factors.end());
  const double k = factors[factors.size() / 2];
  const bool one = std::all_of(factors.begin(), factors.end(), [&](double factor) {
    return std::abs(factor - k) <= kScaleTolerance * std::abs(k);
  });
  if (!one || !std::isfinite(k) || k == 0.0) return {};
  return k;
}

bool near(double k, double factor) {
  return std::abs(k - factor) < kScaleTolerance * std::abs(factor);
}

bool all_gradients_by_hand(const Timeline& timeline, const TimelineStep& step) {
  std::int64_t needed = 0;
  for (int id : timeline.trainable())
    needed += timeline.tensors[static_cast<std::size_t>(id)].numel;
  std::int64_t sent = 0;
  for (const auto* call : synchronizing_calls(timeline, step)) {
    if (call->target.starts_with("gradient")) return true;
    sent += call->numel * call->count;
  }
  return sent >= needed;
}

bool is_one_stage(const Timeline& timeline) {
  return !timeline.layout.model_parallel.empty() &&
         static_cast<int>(timeline.ranks().size()) < timeline.run.world_size;
}

bool divided_before(const Timeline& timeline, const TimelineStep& step, double k) {
  double sum = 0.0;
  std::set<double> factors;
  bool sums = true;  // of the samples' losses: added up over the ranks, too, they are right
  for (int rank : timeline.ranks()) {
    const auto* fact = timeline.fact(rank, "loss", "factor", step.number);
    if (fact == nullptr) continue;  // an earlier stage of a pipeline
    const auto factor = nlohmann::json::parse(fact->value);
    if (!factor.is_number()) return true;  // nobody knows: it is on another device
    const auto* global = timeline.fact(rank, "loss", "global", step.number);
    if (global != nullptr && global->value == "true") return k > 1.0;
    sum += *factors.insert(factor.get<double>()).first;
    const auto* is_sum = timeline.fact(rank, "loss", "sum", step.number);
    sums = sums && is_sum != nullptr && is_sum->value == "true" && factor == 1.0;
  }
  if (factors.empty()) return is_one_stage(timeline);  // the stage that has the loss decides
  if (sums) return k > 1.0;
  // Accumulated micro-batches share each rank's weight.
  const int backwards = step.first()->backwards;
  const bool is_share = std::abs(sum - 1.0) < 1e-6 || std::abs(sum * backwards - 1.0) < 1e-6;
  // By the number of micro-batches, and by nothing else.
  const bool by_micro_batches =
      backwards > 1 && std::abs(*factors.begin() * backwards - 1.0) < 1e-6 && !is_share;
  const bool global = is_share || (factors.size() == 1 && !by_micro_batches);
  return k > 1.0 && sum < 1.0 + 1e-6 && global;
}

}  // namespace ddp_doctor
