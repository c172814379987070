// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/rules/ddp107_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/diagnose/rules/ddp107_multiples.h"

namespace ddp_doctor {
namespace {

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

// Sums of the gradient that is reduced most often in this step, one after another.
std::pair<const Collective*, std::int64_t> sums_in(const TimelineStep& step) {
  std::map<std::string, std::pair<const Collective*, std::int64_t>> by_target;
  for (const auto& call : step.first()->calls) {
    if (call.op != "all_reduce" || call.reduce != "sum" || !call.target.starts_with("gradient"))
      continue;
    auto& [first, count] = by_target[call.target];
    if (first == nullptr) first = &call;
    count += call.count;
  }
  const auto most = std::ranges::max_element(
      by_target, {}, [](const auto& target) { return target.second.second; });
  return most == by_target.end() ? std::pair<const Collective*, std::int64_t>() : most->second;
}

// What the gradients were before the second backward, by the mean of what they were before they
// were reduced for the first time.
std::optional<double> factor_of_first_sum(const Timeline& timeline, const TimelineStep& step) {
  return factor_of(multiples_of(
      timeline, step,
      [&](int rank, int id) { return step.sample(rank, id, Stage::kBeforeBackward); },
      [&](int rank, int id) {
        const auto in_backward = step.sample(rank, id, Stage::kAccumulated);
        return in_backward ? in_backward : step.sample(rank, id, Stage::kCollectiveGradient);
      }));
}

}  // namespace

std::vector<Finding> some_scaled(const Timeline& timeline, const ExaminedSteps& steps,
                                 bool by_hand) {
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

std::vector<Finding> divided_by_its_factor(const Timeline& timeline, const ExaminedSteps& steps) {
  const auto* fact = timeline.fact(timeline.first_rank(), "fully_shard", "factors");
  const auto value = fact == nullptr ? nlohmann::json() : nlohmann::json::parse(fact->value);
  if (!value.is_array() || value.size() != 1) return {};
  const auto ranks = value[0].at("ranks").get<double>();
  const auto factor = value[0].at("factor").get<double>();
  const double k = ranks / factor;
  // Experts that lie on a part of the ranks get gradients from the data of all of them.
  if (near(factor, static_cast<double>(timeline.ranks().size()))) return {};
  if (near(k, 1.0) || divided_before(timeline, *steps.front(), k)) return {};
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
  return {finding};
}

std::vector<Finding> scaled_after_reducer(const Timeline& timeline, const ExaminedSteps& steps) {
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

std::vector<Finding> summed_again(const Timeline& timeline, const ExaminedSteps& steps) {
  const auto world = static_cast<double>(timeline.ranks().size());
  const Collective* call = nullptr;
  std::int64_t times = 0;
  std::size_t affected = 0;
  Finding finding = finding_of(kGradientScale);
  for (const auto* step : steps) {
    const auto [first, count] = sums_in(*step);
    if (count < 2) continue;
    const auto k = factor_of_first_sum(timeline, *step);
    if (!k || !near(*k, world)) continue;  // divided in between, or zeroed
    ++affected;
    if (call != nullptr) continue;
    call = first;
    times = count;
    finding.first_step = step->number;
  }
  if (affected == 0) return {};
  finding.ranks = timeline.ranks();
  finding.where = Where{call->file, call->line};
  finding.evidence["kind"] = "again";
  finding.evidence["sums"] = times;
  finding.evidence["steps_checked"] = affected;
  finding.message = fmt::format(
      "In {} gradients are summed over the ranks {} times, between backward passes that add to "
      "them, and each sum has the one before in it: what the first pass gave counts {:g} times as "
      "much as what the last one gave.",
      count_of(affected, "step"), times, std::pow(world, static_cast<double>(times - 1)));
  finding.prescription = {
      "Reduce once, after the last micro-batch; or divide by the world size after each reduction, "
      "which ReduceOp.AVG does.",
      ""};
  return {finding};
}

}  // namespace ddp_doctor
