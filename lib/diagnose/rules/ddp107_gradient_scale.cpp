// SPDX-License-Identifier: BSD-3-Clause
// DDP107: the synchronized gradients are k times the mean of the local ones, k not 1.
//
// Decided by samples: the values at a few fixed positions of every gradient, before and after the
// synchronization. One k must fit all of them, within the precision of the dtype.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr double kScaleTolerance = 0.01;  // compression to half precision stays well below
constexpr std::size_t kMinValues = 8;     // values that must agree on k

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

// The collectives are large enough to have synchronized all gradients, not only a metric.
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

// One sampled element: the synchronized value, as a multiple of the mean of the local ones.
struct Multiple {
  int id = 0;
  double factor = 0.0;
  bool everywhere = false;  // no rank's local value is zero
};

// Of one step. Values far below the largest are ignored: the rounding error of their sums is too
// large.
std::vector<Multiple> multiples_in(const Timeline& timeline, const TimelineStep& step,
                                   bool by_hand) {
  struct Sums {
    std::vector<double> after, mean, magnitude;
    std::vector<bool> everywhere;
    int id = 0;
    bool all = true;
  };
  std::vector<Sums> sums;
  for (int id : on_several_ranks(timeline)) {
    const auto after = synchronized(step, timeline.first_rank(), id, by_hand);
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
      const auto before = local(step, rank, id, by_hand);
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

// k, if it is one for all of them.
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

// Replicas of one stage of a pipeline, the others of which are on other ranks.
bool is_one_stage(const Timeline& timeline) {
  return !timeline.layout.model_parallel.empty() &&
         static_cast<int>(timeline.ranks().size()) < timeline.run.world_size;
}

// The losses were divided before backward, by the world size or by the total of all ranks (samples,
// tokens): then a sum is correct. Factors that differ across ranks are weights if they add up to 1;
// otherwise they are each rank's own, and the result is a sum of local means.
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

// The sum over micro-batches was divided by their number, after the synchronization; unless each
// loss was divided by it already.
bool divided_by_micro_batches(const Timeline& timeline, const TimelineStep& step, double k) {
  const int backwards = step.first()->backwards;
  if (backwards < 2 || std::abs(k * backwards - 1.0) > kScaleTolerance) return false;
  const auto* fact = timeline.fact(timeline.first_rank(), "loss", "factor", step.number);
  const auto factor = fact == nullptr ? nlohmann::json() : nlohmann::json::parse(fact->value);
  return !factor.is_number() || std::abs(factor.get<double>() * backwards - 1.0) > 1e-6;
}

// k is explained by dividing too often or not often enough by a number of ranks: the world size, or
// the size of a group used for synchronization. Clipping after a hand-written synchronization also
// scales, but by a different factor in every step.
bool is_rank_count_factor(const Timeline& timeline, double k, const TimelineStep& step) {
  const auto world = static_cast<double>(step.expected());
  if (near(k, world) || near(k, 1.0 / world) || near(k, world * world)) return true;
  const auto calls = synchronizing_calls(timeline, step);
  return std::any_of(calls.begin(), calls.end(), [&](const Collective* call) {
    if (call->group.empty()) return false;
    const auto members =
        static_cast<double>(std::count(call->group.begin(), call->group.end(), ',') + 1);
    return near(k, members) || near(k, 1.0 / members) || near(k, world / members) ||
           near(k, members / world);
  });
}

// Clipping after the synchronization makes the factors of some steps smaller: what the others have
// in common, if they are a third of all.
std::optional<double> unclipped(const std::vector<double>& factors) {
  if (factors.empty()) return {};
  const double most = *std::max_element(factors.begin(), factors.end());
  const auto alike =
      std::count_if(factors.begin(), factors.end(), [&](double k) { return near(k, most); });
  if (alike < 2 || 3 * static_cast<std::size_t>(alike) < factors.size()) return {};
  return most;
}

Verdict check_with(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                   bool by_hand) {
  std::vector<std::pair<const TimelineStep*, double>> scaled;
  std::vector<double> all;
  for (const auto* step : steps) {
    if (by_hand && !all_gradients_by_hand(timeline, *step)) continue;
    const auto k = factor_of(multiples_in(timeline, *step, by_hand));
    if (!k) continue;
    scaled.emplace_back(step, *k);
    all.push_back(*k);
  }
  if (const auto most = unclipped(all); by_hand && most)
    std::erase_if(scaled, [&](const auto& one) { return !near(one.second, *most); });
  std::vector<double> factors;
  Finding finding = finding_of(kGradientScale);
  for (const auto& [step, k] : scaled) {
    if (by_hand && !is_rank_count_factor(timeline, k, *step)) return std::vector<Finding>{};
    if (std::abs(k - 1.0) <= 2 * kScaleTolerance || divided_before(timeline, *step, k) ||
        divided_by_micro_batches(timeline, *step, k))
      return std::vector<Finding>{};
    if (!factors.empty() && std::abs(k - factors.front()) > kScaleTolerance * factors.front())
      return std::vector<Finding>{};
    if (!finding.first_step) finding.first_step = step->number;
    factors.push_back(k);
  }
  if (factors.empty() || (steps.size() > 1 && factors.size() < 2)) return std::vector<Finding>{};
  finding.where = where(timeline, by_hand ? "step" : "wrap");
  if (const auto calls = synchronizing_calls(timeline, *steps.front()); by_hand && !calls.empty()) {
    const auto reduces = std::find_if(calls.begin(), calls.end(), [](const Collective* call) {
      return call->target.starts_with("gradient");
    });
    const auto* call = reduces == calls.end() ? calls.front() : *reduces;
    finding.where = Where{call->file, call->line};
  }
  finding.ranks = timeline.ranks();
  if (is_one_stage(timeline)) {
    finding.certainty = Certainty::kLikely;
    finding.evidence["kind"] = "stage";
  }
  const auto* mixed = timeline.fact(timeline.first_rank(), "loss", "mixed", *finding.first_step);
  const bool adds_sums = by_hand && mixed != nullptr && mixed->value == "true";
  if (adds_sums) finding.certainty = Certainty::kLikely;
  finding.evidence["factor"] = factors.front();
  finding.evidence["steps_checked"] = factors.size();
  finding.evidence["hand_written"] = by_hand;
  finding.message = fmt::format(
      "Synchronized gradients are {:.4g} times the mean of the local gradients for all parameters, "
      "in {} ({} ranks).",
      factors.front(),
      all.size() == factors.size()
          ? fmt::format("all {} that could be compared", count_of(factors.size(), "step"))
          : fmt::format("{} of {}, and smaller in the others, as clipping makes them",
                        factors.size(), count_of(all.size(), "step")),
      timeline.ranks().size());
  if (adds_sums)
    finding.message +=
        " The loss adds up sums and means: of a sum over samples the sum over the ranks is right, "
        "of a mean it is not.";
  if (const auto hook = comm_hook_of(timeline); hook && !by_hand) {
    if (auto registered = where(timeline, "comm-hook")) finding.where = std::move(registered);
    finding.evidence["hook"] = *hook;
    finding.message += fmt::format(" They come from the communication hook {}.", *hook);
  }
  if (!by_hand && factors.front() < 1.0) {
    finding.prescription = {
        "Divide by the world size only once: in the communication hook if there is one; otherwise "
        "DistributedDataParallel does it.",
        ""};
  } else if (by_hand) {
    // No strategy removes a program's own collectives, and averaging sums again leaves sums.
    finding.prescription = {
        fmt::format("Divide by the {} exactly once: all_reduce(SUM) and divide, or ReduceOp.AVG.",
                    is_one_stage(timeline) ? "number of ranks of the group" : "world size"),
        ""};
  } else {
    finding.prescription = {
        "Divide by the world size in the communication hook: with a hook, DistributedDataParallel "
        "does not divide.",
        "ddp",
        {},
        {"allreduce-flat"}};
  }
  return std::vector{finding};
}

// Gradients of some parameters that are a multiple of the mean, where all others are the mean.
struct Some {
  std::set<int> ids;
  double k = 1.0;
};

// One k for all of them, by the world size; nothing if there are others, or too few values. A
// gradient that only some ranks have may be divided by their number.
std::optional<Some> some_in(const Timeline& timeline, const TimelineStep& step, bool by_hand) {
  std::map<int, std::vector<double>> by_id;
  for (const auto& multiple : multiples_in(timeline, step, by_hand)) {
    if (!multiple.everywhere) return {};
    by_id[multiple.id].push_back(multiple.factor);
  }
  const auto world = static_cast<double>(step.expected());
  Some some;
  std::size_t right = 0;
  std::size_t wrong = 0;
  for (const auto& [id, factors] : by_id) {
    const double k = factors.front();
    if (std::ranges::any_of(factors, [&](double factor) { return !near(factor, k); })) return {};
    if (near(k, 1.0)) {
      right += factors.size();
      continue;
    }
    if (!near(k, world) && !near(k, 1.0 / world)) return {};
    if (!some.ids.empty() && !near(k, some.k)) return {};
    some.k = k;
    some.ids.insert(id);
    wrong += factors.size();
  }
  if (wrong < kMinValues / 2 || right < kMinValues / 2) return {};
  return some;
}

// A gradient that is reduced twice, because two modules share it; a bucket of a communication hook
// that is not divided.
std::vector<Finding> some_scaled(const Timeline& timeline,
                                 const std::vector<const TimelineStep*>& steps, bool by_hand) {
  std::optional<Some> first;
  std::size_t affected = 0;
  Finding finding = finding_of(kGradientScale);
  for (const auto* step : steps) {
    if (by_hand && !all_gradients_by_hand(timeline, *step)) continue;
    const auto some = some_in(timeline, *step, by_hand);
    if (!some) continue;
    if (first && (first->ids != some->ids || !near(first->k, some->k))) return {};
    ++affected;
    if (first) continue;
    first = some;
    finding.first_step = step->number;
  }
  if (!first || affected < 2) return {};
  finding.certainty = Certainty::kLikely;
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, first->ids);
  finding.where = where(timeline, by_hand ? "step" : "comm-hook");
  for (const auto* call : synchronizing_calls(timeline, *timeline.step(*finding.first_step))) {
    if (by_hand && call->target == "gradient of " + finding.parameters.front().name)
      finding.where = Where{call->file, call->line};
  }
  finding.evidence["kind"] = "some";
  finding.evidence["factor"] = first->k;
  finding.evidence["steps_checked"] = affected;
  finding.evidence["hand_written"] = by_hand;
  finding.message = fmt::format(
      "The synchronized gradient of {} is {:.4g} times the mean of the local ones, while those of "
      "all other parameters are the mean, in {} ({} ranks).",
      list_of(finding.parameters), first->k, count_of(affected, "step"), timeline.ranks().size());
  finding.prescription = {
      by_hand ? "Reduce each gradient once (two modules may share a parameter), and divide each by "
                "the world size once."
              : "Divide every bucket by the world size in the communication hook.",
      ""};
  return {finding};
}

// fully_shard divides by a factor that the program set, instead of by the number of ranks that have
// data of their own. Its reductions themselves are not seen.
Verdict check_divide_factor(const Timeline& timeline,
                            const std::vector<const TimelineStep*>& steps) {
  const auto* fact = timeline.fact(timeline.first_rank(), "fully_shard", "factors");
  const auto value = fact == nullptr ? nlohmann::json() : nlohmann::json::parse(fact->value);
  if (!value.is_array() || value.size() != 1) return std::vector<Finding>{};
  const auto ranks = value[0].at("ranks").get<double>();
  const auto factor = value[0].at("factor").get<double>();
  const double k = ranks / factor;
  // Experts that lie on a part of the ranks get gradients from the data of all of them.
  if (near(factor, static_cast<double>(timeline.ranks().size()))) return std::vector<Finding>{};
  if (near(k, 1.0) || divided_before(timeline, *steps.front(), k)) return std::vector<Finding>{};
  Finding finding = finding_of(kGradientScale);
  finding.certainty = Certainty::kLikely;  // the loss may make up for it
  finding.ranks = timeline.ranks();
  finding.first_step = steps.front()->number;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.evidence["factor"] = k;
  finding.evidence["kind"] = "divide-factor";
  finding.message = fmt::format(
      "set_gradient_divide_factor({:.4g}) replaces fully_shard's division by {} ranks, and no "
      "division of the loss was seen: synchronized gradients are {:.4g} times the mean of the "
      "local gradients, unless the loss makes up for it.",
      factor, ranks, k);
  finding.prescription = {
      "Leave out set_gradient_divide_factor, or set it to the number of ranks, where the loss is "
      "the mean over a rank's own batch.",
      ""};
  return std::vector{finding};
}

// The factor between what the reducer gave and what the optimizer got, on every rank; nothing if
// there is not one.
std::optional<double> factor_after_reducer(const Timeline& timeline, const TimelineStep& step) {
  std::vector<double> factors;
  for (const int rank : timeline.ranks()) {
    for (const int id : timeline.trainable()) {
      const auto before = step.sample(rank, id, Stage::kReducedGradient);
      const auto after = step.sample(rank, id, Stage::kGradient);
      if (!before || !after || before->values.size() != after->values.size()) return {};
      for (std::size_t i = 0; i < before->values.size(); ++i) {
        if (std::abs(before->values[i]) > 1e-12)
          factors.push_back(after->values[i] / before->values[i]);
      }
    }
  }
  if (factors.size() < kMinValues) return {};
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  return *high - *low <= 1e-4 * std::abs(*high) ? std::optional(*high) : std::nullopt;
}

// The reducer's mean is divided by the number of ranks again, or multiplied by it, in every step.
// No correct program does that but to make up for a factor of its loss: it has none.
std::vector<Finding> scaled_after_reducer(const Timeline& timeline,
                                          const std::vector<const TimelineStep*>& steps) {
  const auto world = static_cast<double>(timeline.ranks().size());
  std::optional<double> k;
  for (const auto* step : steps) {
    const auto* loss = timeline.fact(timeline.first_rank(), "loss", "factor", step->number);
    const auto* sum = timeline.fact(timeline.first_rank(), "loss", "sum", step->number);
    const bool plain = loss != nullptr && loss->value == "1.0" && sum == nullptr;
    if (!plain || step->first()->backwards != 1 || step->first()->scale) return {};
    const auto factor = factor_after_reducer(timeline, *step);
    if (!factor || !(near(*factor, 1.0 / world) || near(*factor, world))) return {};
    if (k && !near(*factor, *k)) return {};
    k = factor;
  }
  if (!k || steps.size() < 2) return {};
  Finding finding = finding_of(kGradientScale);
  finding.certainty = Certainty::kLikely;
  finding.ranks = timeline.ranks();
  finding.first_step = steps.front()->number;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.evidence["factor"] = *k;
  finding.evidence["kind"] = "after-reducer";
  finding.evidence["steps_checked"] = steps.size();
  finding.message = fmt::format(
      "Between backward and optimizer.step the program makes every gradient {:.4g} times what "
      "DistributedDataParallel averaged over {} ranks, in all {} that could be compared.",
      *k, timeline.ranks().size(), count_of(steps.size(), "step"));
  finding.prescription = {
      "Remove it: the gradients that DistributedDataParallel leaves are the mean already.", ""};
  return {finding};
}

Verdict check_gradient_scale(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (auto factor = check_divide_factor(timeline, steps);
      !std::get<std::vector<Finding>>(factor).empty())
    return factor;
  Verdict reduced = check_with(timeline, steps, false);
  if (!std::get<std::vector<Finding>>(reduced).empty()) return reduced;
  if (auto after = scaled_after_reducer(timeline, steps); !after.empty()) return after;
  if (auto some = some_scaled(timeline, steps, false); !some.empty()) return some;
  // Where each rank has parts of the model, a loop's own all-reduce may rightly sum: the norms
  // beside tensor parallel layers under sequence parallel.
  if (!timeline.rank_local.empty()) return reduced;
  Verdict by_hand = check_with(timeline, steps, true);
  if (!std::get<std::vector<Finding>>(by_hand).empty()) return by_hand;
  return some_scaled(timeline, steps, true);
}

}  // namespace

const Rule kGradientScale = {
    .code = "DDP107",
    .name = "gradient-scale",
    .severity = Severity::kError,
    .headline = "synchronized gradients are not the mean of the local ones",
    .check = check_gradient_scale,
    .scope = Scope::kWrapper,
    .needs = {.ranks = 2, .steps = 1, .all_ranks = true},
    .holds_on_mesh = "stage",
    .of_reductions = true};

}  // namespace ddp_doctor
