// SPDX-License-Identifier: BSD-3-Clause
// DDP108: between backward and synchronization the gradients were multiplied by a factor that
// differs across ranks: clipping by the local norm, or normalization.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/gradient_hooks.h"
#include "lib/diagnose/rule.h"
#include "lib/diagnose/rules/ddp108_own_norm.h"

namespace ddp_doctor {
namespace {

constexpr double kTolerance = 1e-3;

// The factor by which `rank` scaled its gradients between two stages; nothing if no single factor
// fits.
std::optional<double> factor_between(const Timeline& timeline, const TimelineStep& step, int rank,
                                     Stage from, Stage to) {
  std::vector<double> factors;
  for (int id : timeline.trainable()) {
    const auto before = step.sample(rank, id, from);
    const auto after = step.sample(rank, id, to);
    if (!before || !after || before->values.size() != after->values.size()) continue;
    // The reducer ran in between: the value is the mean, not a scaled local gradient.
    const bool is_later = to == Stage::kCollectiveGradient || to == Stage::kGradient;
    if (is_later && step.sample(rank, id, Stage::kReducedGradient)) continue;
    for (std::size_t i = 0; i < before->values.size(); ++i) {
      if (std::abs(before->values[i]) > 1e-12 && std::isfinite(before->values[i]))
        factors.push_back(after->values[i] / before->values[i]);
    }
  }
  if (factors.size() < 4) return {};
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  if (*high - *low > kTolerance * std::abs(*high)) return {};
  return *high;
}

// Before the first hand-written collective, or between accumulated micro-batches. In the latter, a
// factor of 0 means that the gradients were zeroed. Where every micro-batch ran under no_sync, the
// local gradients are those of the last one.
std::optional<double> factor_of(const Timeline& timeline, const TimelineStep& step, int rank) {
  const auto accumulated =
      factor_between(timeline, step, rank, Stage::kAccumulated, Stage::kBeforeBackward);
  if (accumulated && *accumulated != 0.0 && *accumulated != 1.0) return accumulated;
  const auto local =
      factor_between(timeline, step, rank, Stage::kLocalGradient, Stage::kCollectiveGradient);
  return local ? local
               : factor_between(timeline, step, rank, Stage::kAccumulated,
                                Stage::kCollectiveGradient);
}

// Factors that are the weights of a mean, such as each rank's share of the tokens, are intended:
// they add up to 1, or to the world size if the sum is divided by it.
bool is_weighted_mean(const std::vector<double>& factors) {
  const double sum = std::accumulate(factors.begin(), factors.end(), 0.0);
  const auto world_size = static_cast<double>(factors.size());
  return std::abs(sum - 1.0) <= kTolerance || std::abs(sum - world_size) <= kTolerance * world_size;
}

// The weights may also be normalized afterwards (the sum divided by the number of all tokens): then
// the optimizer got sum(w_r * local_r) with weights that add up to 1.
bool becomes_weighted_mean(const Timeline& timeline, const TimelineStep& step,
                           const std::vector<double>& factors) {
  const double sum = std::accumulate(factors.begin(), factors.end(), 0.0);
  std::size_t compared = 0;
  for (int id : timeline.trainable()) {
    const auto got = step.sample(step.first_rank(), id, Stage::kGradient);
    if (!got) continue;
    for (std::size_t i = 0; i < got->values.size(); ++i) {
      double mean = 0.0;
      double magnitude = 0.0;
      for (int rank : timeline.ranks()) {
        auto local = step.sample(rank, id, Stage::kLocalGradient);
        if (!local) local = step.sample(rank, id, Stage::kAccumulated);
        if (!local || local->values.size() != got->values.size()) return false;
        const double part = factors[static_cast<std::size_t>(rank)] / sum * local->values[i];
        mean += part;
        magnitude += std::abs(part);
      }
      if (std::abs(got->values[i] - mean) > 10 * kTolerance * magnitude) return false;
      ++compared;
    }
  }
  return compared > 0;
}

// The factor by which each rank contributed to what a communication hook made of the local
// gradients, 1 for a mean: solved for by least squares over the sampled values. Nothing if no
// factors fit, as with several buckets, compression or noise.
std::optional<std::vector<double>> factors_in_hook(const Timeline& timeline,
                                                   const TimelineStep& step) {
  constexpr std::size_t kMaxRanks = 16;
  constexpr double kIndependent = 1e-6;
  const std::size_t n = step.here->size();
  if (n > kMaxRanks) return {};
  std::vector<std::vector<double>> rows;  // of each value: every rank's, and the result
  for (int id : timeline.trainable()) {
    auto got = step.sample(step.first_rank(), id, Stage::kReducedGradient);
    if (!got) got = step.sample(step.first_rank(), id, Stage::kGradient);
    if (!got) continue;
    std::vector<Sample> local;
    for (const int rank : *step.here) {
      const auto seen = step.sample(rank, id, Stage::kLocalGradient);
      if (!seen || seen->values.size() != got->values.size()) return {};
      local.push_back(*seen);
    }
    for (std::size_t i = 0; i < got->values.size(); ++i) {
      auto& row = rows.emplace_back();
      for (const auto& seen : local) row.push_back(seen.values[i]);
      row.push_back(got->values[i]);
    }
  }
  if (rows.size() < 4 * n) return {};
  // The normal equations, by elimination.
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0.0));
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= n; ++j) a[i][j] += row[i] * row[j];
    }
  }
  std::vector<double> squares;
  for (std::size_t i = 0; i < n; ++i) squares.push_back(a[i][i]);
  for (std::size_t i = 0; i < n; ++i) {
    if (!(a[i][i] > kIndependent * squares[i])) return {};  // ranks with the same gradients
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= n; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  std::vector<double> factors;
  for (std::size_t i = 0; i < n; ++i) factors.push_back(a[i][n] / a[i][i]);
  double error = 0.0;
  double magnitude = 0.0;
  for (const auto& row : rows) {
    const double fit = std::inner_product(factors.begin(), factors.end(), row.begin(), 0.0);
    error += (fit - row[n]) * (fit - row[n]);
    magnitude += row[n] * row[n];
  }
  if (!(std::sqrt(error) <= kTolerance * std::sqrt(magnitude))) return {};
  for (double& factor : factors) factor *= static_cast<double>(n);
  return factors;
}

// The L2 norm of a rank's local gradients.
double local_norm(const Timeline& timeline, const TimelineStep& step, int rank) {
  double sum = 0.0;
  for (int id : timeline.trainable()) {
    if (const auto seen = step.find(rank, id, Stage::kLocalGradient))
      sum += seen->l2_norm * seen->l2_norm;
  }
  return std::sqrt(sum);
}

// Each rank's gradients were clipped by their own norm: every rank contributed at most its mean's
// share, some less, and those that were clipped the same norm.
bool clipped_to_one_norm(const Timeline& timeline, const TimelineStep& step,
                         const std::vector<double>& factors) {
  double norm = 0.0;
  std::size_t clipped = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0.0) || factors[i] > 1.0 + 10 * kTolerance) return false;
    if (factors[i] > 0.99) continue;
    const double here = factors[i] * local_norm(timeline, step, (*step.here)[i]);
    if (clipped++ == 0) norm = here;
    if (std::abs(here - norm) > 10 * kTolerance * norm) return false;
  }
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  return clipped > 0 && *high - *low > 10 * kTolerance * *high;
}

// What `rank` left of each sampled value; empty unless it made some of them smaller, none larger
// and none zero: clipping by parameter, by row or by value. Compression keeps a value or drops it,
// or rounds it; noise also makes some larger.
std::vector<double> shrunk(const Timeline& timeline, const TimelineStep& step, int rank) {
  std::vector<double> left;
  std::size_t smaller = 0;
  for (int id : timeline.trainable()) {
    const auto before = step.sample(rank, id, Stage::kLocalGradient);
    const auto after = step.sample(rank, id, Stage::kCollectiveGradient);
    if (!before || !after || before->values.size() != after->values.size()) continue;
    if (step.sample(rank, id, Stage::kReducedGradient)) continue;
    for (std::size_t i = 0; i < before->values.size(); ++i) {
      if (before->values[i] == 0.0) continue;
      const double ratio = after->values[i] / before->values[i];
      if (!(ratio > 0.0) || ratio > 1.0 + kTolerance) return {};
      smaller += ratio < 0.99 ? 1 : 0;
      left.push_back(ratio);
    }
  }
  return 10 * smaller < left.size() ? std::vector<double>{} : left;
}

// Every rank clipped parts of its gradients, and not the same ones.
bool clipped_by_parts(const Timeline& timeline, const TimelineStep& step) {
  const auto first = shrunk(timeline, step, step.first_rank());
  if (first.size() < 8) return false;
  bool same = true;
  bool one_factor = true;  // a weight of the rank
  for (const int rank : *step.here) {
    const auto here = shrunk(timeline, step, rank);
    if (here.size() != first.size()) return false;
    const auto [low, high] = std::minmax_element(here.begin(), here.end());
    one_factor = one_factor && *high - *low <= 10 * kTolerance;
    for (std::size_t i = 0; i < here.size(); ++i)
      same = same && std::abs(here[i] - first[i]) <= 10 * kTolerance;
  }
  return !same && !one_factor;
}

// What clipping by value leaves: some elements are cut to one limit, and no other is changed.
struct ByValue {
  double limit = 0.0;
  std::size_t cut = 0;
  std::set<int> ranks;
  std::set<std::int64_t> steps;
};

// The same limit on every rank, in every step; nothing if a gradient was changed in another way.
std::optional<ByValue> clipped_by_value(const Timeline& timeline,
                                        const std::vector<const TimelineStep*>& steps) {
  constexpr double kSame = 1e-5;
  constexpr std::size_t kMinCut = 8;
  ByValue found;
  for (const auto* step : steps) {
    for (const int rank : *step->here) {
      for (const int id : timeline.trainable()) {
        const auto before = step->sample(rank, id, Stage::kLocalGradient);
        const auto after = step->sample(rank, id, Stage::kCollectiveGradient);
        if (!before || !after || before->values.size() != after->values.size()) continue;
        if (step->sample(rank, id, Stage::kReducedGradient)) return {};
        for (std::size_t i = 0; i < before->values.size(); ++i) {
          const double was = before->values[i];
          const double is = after->values[i];
          if (was == is) continue;
          if (std::abs(is) > std::abs(was) || std::signbit(is) != std::signbit(was)) return {};
          if (found.cut == 0) found.limit = std::abs(is);
          if (std::abs(std::abs(is) - found.limit) > kSame * found.limit) return {};
          ++found.cut;
          found.ranks.insert(rank);
          found.steps.insert(step->number);
        }
      }
    }
  }
  if (found.cut < kMinCut || found.ranks.size() < 2 || found.limit == 0.0) return {};
  return found;
}

// Clipping by parameter, row or value: nobody knows that it was not meant.
std::vector<Finding> clip_by_parts(const Timeline& timeline,
                                   const std::vector<const TimelineStep*>& steps) {
  Finding finding = finding_of(kClipBeforeSync);
  finding.certainty = Certainty::kLikely;
  std::size_t affected = 0;
  for (const auto* step : steps) {
    if (!clipped_by_parts(timeline, *step)) continue;
    ++affected;
    if (!finding.first_step) finding.first_step = step->number;
  }
  const auto by_value = clipped_by_value(timeline, steps);
  if (by_value) {
    affected = by_value->steps.size();
    finding.first_step = *by_value->steps.begin();
    finding.evidence["limit"] = by_value->limit;
  } else if (2 * affected <= steps.size()) {
    return {};
  }
  const auto calls = calls_before_step(*timeline.step(*finding.first_step), timeline.first_rank());
  if (!calls.empty()) finding.where = Where{calls.front()->file, calls.front()->line};
  finding.ranks = timeline.ranks();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Each rank clipped its own gradients, {}, after backward and before they were synchronized, "
      "in {} of {}: the result is a mean of clipped gradients, not the clipped mean.",
      by_value ? fmt::format("to elements of at most {:.4g}", by_value->limit)
               : "by parameter, row or value",
      affected, count_of(steps.size(), "step"));
  finding.prescription = {"Synchronize first, then clip.", ""};
  return {finding};
}

// Each rank's factor before the first hand-written collective; nothing if some rank has none.
std::optional<std::vector<double>> own_factors(const Timeline& timeline, const TimelineStep& step) {
  std::vector<double> factors;
  for (int rank : timeline.ranks()) {
    const auto factor = factor_of(timeline, step, rank);
    if (!factor) return {};
    factors.push_back(*factor);
  }
  return factors;
}

// The optimizer's step(), or a hook of it, reduces as many numbers as there are gradients.
bool reduces_in_own_step(const Timeline& timeline, const TimelineStep& step) {
  std::int64_t missing = 0;
  for (const int id : timeline.trainable())
    missing += timeline.tensors[static_cast<std::size_t>(id)].numel;
  for (const auto& call : step.first()->calls) {
    if (call.moment == "optimizer" && call.op.find("reduce") != std::string::npos)
      missing -= call.numel * call.count;
  }
  return missing <= 0;
}

// Each rank's factor before an optimizer that reduces the gradients itself.
std::optional<std::vector<double>> factors_before_own_step(const Timeline& timeline,
                                                           const TimelineStep& step) {
  if (!reduces_in_own_step(timeline, step)) return {};
  std::vector<double> factors;
  for (const int rank : *step.here) {
    const auto factor =
        factor_between(timeline, step, rank, Stage::kLocalGradient, Stage::kGradient);
    if (!factor) return {};
    factors.push_back(*factor);
  }
  return factors;
}

// They differ, and are no weights of a mean.
bool scaled_apart(const Timeline& timeline, const TimelineStep& step,
                  const std::vector<double>& factors) {
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  if (*high - *low <= 10 * kTolerance * std::abs(*high)) return false;
  return !is_weighted_mean(factors) && !becomes_weighted_mean(timeline, step, factors);
}

// The optimizer got the gradients as they went into the collectives, such as a barrier: nothing
// synchronized them.
bool left_alone(const Timeline& timeline, const TimelineStep& step) {
  bool compared = false;
  for (const int id : timeline.trainable()) {
    for (const int rank : *step.here) {
      const auto before = step.sample(rank, id, Stage::kCollectiveGradient);
      const auto after = step.sample(rank, id, Stage::kGradient);
      if (!before || !after) continue;
      if (before->values != after->values) return false;
      compared = true;
    }
  }
  return compared;
}

std::vector<Finding> clip_in_gradient_hooks(const Timeline& timeline) {
  const auto clipping = clipping_in_gradient_hooks(timeline);
  if (!clipping) return {};
  Finding finding = finding_of(kClipBeforeSync);
  finding.certainty = Certainty::kLikely;  // each rank's share may be limited on purpose
  finding.ranks = {clipping->ranks.begin(), clipping->ranks.end()};
  finding.first_step = clipping->first_step;
  finding.parameters = parameters_of(timeline, clipping->parameters);
  finding.where = where(timeline, "gradient-hook " + finding.parameters.front().name);
  finding.evidence["kind"] = "gradient-hook";
  finding.evidence["limit"] = clipping->limit;
  finding.message = fmt::format(
      "A hook (register_hook) clips the gradients of {} to {} {:.4g} on each rank, before they are "
      "synchronized: the result is not the clipped mean.",
      list_of(finding.parameters), clipping->by_norm ? "a norm of" : "elements of at most",
      clipping->limit);
  finding.prescription = {
      "Clip the synchronized gradients instead: after backward() and before optimizer.step(), with "
      "torch.nn.utils.clip_grad_norm_ or clip_grad_value_.",
      ""};
  return {finding};
}

Verdict check_clip_before_sync(const Timeline& timeline) {
  auto steps = complete_steps(timeline);
  if (auto own = clip_by_own_norm(timeline, steps); !own.empty()) return own;
  std::erase_if(steps, [&](const auto* step) { return left_alone(timeline, *step); });
  Finding finding = finding_of(kClipBeforeSync);
  std::size_t affected = 0;
  const auto hook = comm_hook_of(timeline);
  for (const auto* step : steps) {
    auto factors = hook ? factors_in_hook(timeline, *step) : own_factors(timeline, *step);
    // What a hook or an optimizer makes of other factors is not seen.
    const bool hidden = hook || !factors;
    if (!factors && !hook) factors = factors_before_own_step(timeline, *step);
    if (!factors) continue;
    if (hidden ? !clipped_to_one_norm(timeline, *step, *factors)
               : !scaled_apart(timeline, *step, *factors))
      continue;
    ++affected;
    if (finding.first_step) continue;
    finding.first_step = step->number;
    finding.evidence["factor_by_rank"] = *factors;
    // A distributed optimizer may want each rank's share limited.
    if (hidden && !hook) finding.certainty = Certainty::kLikely;
  }
  if (affected == 0) {
    auto by_parts = clip_by_parts(timeline, steps);
    return by_parts.empty() ? clip_in_gradient_hooks(timeline) : by_parts;
  }
  if (const auto calls = calls_before_step(*timeline.step(*finding.first_step), 0); !calls.empty())
    finding.where = Where{calls.front()->file, calls.front()->line};
  if (!finding.where) finding.where = where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  std::string by_rank;
  for (const double factor : finding.evidence["factor_by_rank"].get<std::vector<double>>())
    by_rank += fmt::format("{}{:.4g}", by_rank.empty() ? "" : ", ", factor);
  finding.message = fmt::format(
      "Each rank multiplied its gradients by a different factor after backward and before they "
      "were synchronized ({} in step {}), in {} of {}: the result is not the mean of the "
      "gradients.",
      by_rank, *finding.first_step, affected, count_of(steps.size(), "step"));
  if (hook) {
    finding.where = where(timeline, "comm-hook");
    finding.evidence["hook"] = *hook;
    finding.message += fmt::format(" It happens in the communication hook {}.", *hook);
  }
  finding.prescription = {
      "Synchronize first, then clip, unscale or normalize: the norm of the mean is the same on "
      "every rank.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kClipBeforeSync = {
    .code = "DDP108",
    .name = "clip-before-sync",
    .severity = Severity::kError,
    .headline = "gradients were scaled by a rank-local factor before they were synchronized",
    .check = check_clip_before_sync,
    .scope = Scope::kModel,
    .needs = {.ranks = 2, .steps = 1, .all_ranks = true},
    .lasting = true,
    .holds_on_mesh = "own-norm",
    .explains = {{&kNotReducedOverDimension, "", "own-norm"}, {&kWeightsDrift, "", "own-norm"}}};

}  // namespace ddp_doctor
