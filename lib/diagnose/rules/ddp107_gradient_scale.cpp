// SPDX-License-Identifier: BSD-3-Clause
// DDP107: the synchronized gradients are k times the mean of the local ones, k not 1.
//
// Decided by samples: the values at a few fixed positions of every gradient, before and after the
// synchronization. One k must fit all of them, within the precision of the dtype.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/diagnose/rules/ddp107_kinds.h"
#include "lib/diagnose/rules/ddp107_multiples.h"

namespace ddp_doctor {
namespace {

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

Verdict check_gradient_scale(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (auto factor = divided_by_its_factor(timeline, steps); !factor.empty()) return factor;
  Verdict reduced = check_with(timeline, steps, false);
  if (!std::get<std::vector<Finding>>(reduced).empty()) return reduced;
  if (auto after = scaled_after_reducer(timeline, steps); !after.empty()) return after;
  if (auto again = summed_again(timeline, steps); !again.empty()) return again;
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
