// SPDX-License-Identifier: BSD-3-Clause
// DDP115: what a rank got back from a reduction is neither its own gradient nor the mean of the
// local ones, while the other ranks got the mean: a communication hook, a link, memory or a device
// changed values.
//
// Decided by samples, the values at a few fixed positions of every gradient, in tensors whose bits
// differ across ranks after the reduction.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr double kTolerance = 0.01;  // of a tensor's largest value: compression stays below

using Values = std::vector<double>;

// A rank's values, zeros where it had no gradient; nothing if they are unknown.
std::optional<Values> local_values(const TimelineStep& step, int rank, int id, std::size_t count) {
  const auto seen = step.sample(rank, id, Stage::kLocalGradient);
  if (seen && seen->values.size() == count) return Values(seen->values.begin(), seen->values.end());
  const auto usage = step.usage(rank, id);
  if (!seen && usage && !usage->used) return Values(count, 0.0);
  return {};
}

// Sampled elements, over all tensors that differ.
struct Counts {
  std::size_t seen = 0, wrong = 0, zero = 0;
};

// The result of one step: by rank, what is wrong; empty unless some ranks have the mean and all
// others have something else.
std::map<int, Counts> wrong_in(const Timeline& timeline, const TimelineStep& step,
                               std::set<int>& parameters) {
  std::map<int, Counts> wrong;
  for (int id : timeline.trainable()) {
    if (step.groups(id, Stage::kReducedGradient).size() < 2) continue;
    const auto first = step.sample(step.first_rank(), id, Stage::kReducedGradient);
    if (!first) return {};
    const std::size_t count = first->values.size();
    std::map<int, Values> local;
    Values mean(count, 0.0);
    double largest = 0.0;
    for (int rank : *step.here) {
      const auto values = local_values(step, rank, id, count);
      if (!values) return {};
      for (std::size_t i = 0; i < count; ++i) {
        mean[i] += (*values)[i] / static_cast<double>(step.expected());
        largest = std::max(largest, std::abs((*values)[i]));
      }
      local[rank] = *values;
    }
    std::map<int, Counts> here;
    std::size_t right = 0;
    for (int rank : *step.here) {
      const auto got = step.sample(rank, id, Stage::kReducedGradient);
      if (!got || got->values.size() != count) return {};
      Counts counts;
      for (std::size_t i = 0; i < count; ++i) {
        const double value = got->values[i];
        ++counts.seen;
        if (std::abs(value - mean[i]) <= kTolerance * largest) continue;
        if (value == local[rank][i] && value != 0.0) return {};  // its own: it was not reduced
        ++counts.wrong;
        counts.zero += value == 0.0 ? 1 : 0;
      }
      if (counts.wrong == 0) ++right;
      here[rank] = counts;
    }
    if (right == 0) return {};  // nobody has the mean
    for (const auto& [rank, counts] : here) {
      if (counts.wrong == 0) continue;
      parameters.insert(id);
      wrong[rank].seen += counts.seen;
      wrong[rank].wrong += counts.wrong;
      wrong[rank].zero += counts.zero;
    }
  }
  if (wrong.size() == step.expected()) wrong.clear();
  return wrong;
}

// The samples may miss what was wrong at first.
bool reduced_apart(const Timeline& timeline, const TimelineStep& step) {
  return std::ranges::any_of(timeline.trainable(), [&](int id) {
    return step.groups(id, Stage::kReducedGradient).size() > 1;
  });
}

std::string pattern_of(const Counts& counts) {
  return counts.zero == counts.wrong ? "zeros"
         : counts.zero == 0          ? "other values"
                                     : "zeros and other values";
}

Verdict check_corrupted_reduction(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kCorruptedReduction);
  std::map<int, Counts> wrong;
  std::set<int> parameters;
  std::size_t affected = 0;
  for (const auto* step : steps) {
    std::set<int> touched;
    const auto here = wrong_in(timeline, *step, touched);
    if (here.empty()) continue;
    ++affected;
    parameters.merge(touched);
    for (const auto& [rank, counts] : here) {
      wrong[rank].seen += counts.seen;
      wrong[rank].wrong += counts.wrong;
      wrong[rank].zero += counts.zero;
    }
  }
  if (affected == 0) return std::vector<Finding>{};
  finding.first_step = (*std::ranges::find_if(steps, [&](const TimelineStep* step) {
                         return reduced_apart(timeline, *step);
                       }))->number;
  const auto hook = comm_hook_of(timeline);
  finding.where = where(timeline, hook ? "comm-hook" : "wrap");
  std::string counts;
  for (const auto& [rank, count] : wrong) {
    finding.ranks.push_back(rank);
    auto& evidence = finding.evidence["sampled_elements"][std::to_string(rank)];
    evidence = {{"seen", count.seen}, {"wrong", count.wrong}, {"zero", count.zero}};
    counts +=
        fmt::format("{}{} of {} sampled elements on rank {} are wrong ({})",
                    counts.empty() ? "" : ", ", count.wrong, count.seen, rank, pattern_of(count));
  }
  // Which tensors are hit is chance.
  finding.evidence["parameters_hit"] = parameters.size();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  if (hook) finding.evidence["hook"] = *hook;
  finding.message = fmt::format(
      "What {} got back from the reduction is neither the rank's own gradient nor the mean of all "
      "ranks, which the others got: {}, in {} of {}, in tensors that differ across ranks.",
      ranks_of(finding.ranks), counts, affected, count_of(steps.size(), "step"));
  finding.prescription = {
      hook ? fmt::format("Check the communication hook {}: it, or what it sends through, changes "
                         "values on {}.",
                         *hook, ranks_of(finding.ranks))
           : fmt::format("Check the hardware of {}: its network link, memory and device. Run "
                         "memory and NCCL tests there, and repeat the run on other hardware.",
                         ranks_of(finding.ranks)),
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kCorruptedReduction = {
    .code = "DDP115",
    .name = "corrupted-reduction",
    .severity = Severity::kError,
    .headline = "one rank got wrong values from a reduction",
    .check = check_corrupted_reduction,
    .scope = Scope::kWrapper,
    .needs = {.ranks = 2, .steps = 1, .all_ranks = true},
    .of_reductions = true,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
