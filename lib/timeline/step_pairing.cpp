// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/step_pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

// Backward passes of one step that were reduced; nothing if the trace does not tell: it was cut,
// another optimizer stepped in between and has counted some of them, a wrapper was not watched, or
// a forward was followed by no reduction, which is another bug.
std::optional<std::int64_t> reductions_in(const StepRecord& step) {
  std::int64_t count = 0;
  std::int64_t forwards = 0;
  std::int64_t reduced = 0;  // of these, counting each wrapper
  for (const auto& [action, times] : actions_of(step.trace)) {
    if (action == "..." || action.front() == 'S' || action.find('?') != std::string::npos)
      return {};
    if (action.find('+') == std::string::npos) continue;
    if (action.front() == 'F') forwards += times;
    if (action.front() != 'B') continue;
    count += times;
    reduced += times * std::count(action.begin(), action.end(), '+');
  }
  return forwards > reduced ? std::nullopt : std::optional(count);
}

// All its wrappers reduce over all `count` ranks.
bool reduces_over_all(const RankRecord& record, std::size_t count) {
  return !record.ddp_fields.empty() &&
         std::all_of(record.facts.begin(), record.facts.end(), [&](const Fact& fact) {
           if (!fact.is("wrapper", "ranks")) return true;
           return nlohmann::json::parse(fact.value, nullptr, false).size() == count;
         });
}

bool ends_a_join(const Fact& fact) { return fact.subject == "join" && fact.key == "ended"; }

bool is_before_the_end_of_a_join(const std::vector<RankRecord>& records, std::int64_t step) {
  return std::ranges::any_of(records, [&](const RankRecord& record) {
    return std::ranges::any_of(
        record.facts, [&](const Fact& fact) { return ends_a_join(fact) && fact.step >= step; });
  });
}

// The first step that the ranks made after different numbers of reductions.
std::optional<Unpaired> made_apart(const std::vector<RankRecord>& records) {
  std::map<std::int64_t, std::map<int, std::int64_t>> before;  // by step and rank
  for (const auto& record : records) {
    if (!reduces_over_all(record, records.size())) return {};
    std::int64_t sum = 0;
    for (const auto& step : record.steps) {
      if (step.step == 0) continue;
      if (step.optimizer != 0) return {};
      const auto here = reductions_in(step);
      if (!here) return {};
      before[step.step][record.header.rank] = sum += *here;
    }
  }
  for (const auto& [step, counts] : before) {
    const bool same = std::all_of(
        counts.begin(), counts.end(),
        [first = counts.begin()->second](const auto& count) { return count.second == first; });
    if (same || counts.size() < records.size()) continue;
    // An optimizer that takes part in a Join steps for a rank that has no batches left.
    if (is_before_the_end_of_a_join(records, step)) return Unpaired{step, true, {}};
    return Unpaired{step, false, counts};
  }
  return {};
}

// The first step after the end of a Join that did not end in the same step on every rank.
std::optional<Unpaired> after_join(const std::vector<RankRecord>& records) {
  std::map<std::int64_t, std::set<std::int64_t>> ends;  // by the number of the Join: current steps
  for (const auto& record : records) {
    for (const auto& fact : record.facts) {
      if (!ends_a_join(fact)) continue;
      const auto number = nlohmann::json::parse(fact.value, nullptr, false);
      if (number.is_number_integer()) ends[number.get<std::int64_t>()].insert(fact.step);
    }
  }
  for (const auto& [number, steps] : ends) {
    if (steps.size() > 1) return Unpaired{*steps.begin(), true, {}};
  }
  return {};
}

}  // namespace

std::string Unpaired::in_words() const {
  if (join)
    return fmt::format(
        "inside Join the ranks made different numbers of steps: from step {} on, steps are not "
        "compared",
        step);
  std::string text;
  for (const auto& [rank, count] : reductions) {
    text += text.empty()
                ? fmt::format("rank {} made step {} after {} reductions", rank, step, count)
                : fmt::format(", rank {} after {}", rank, count);
  }
  return text;
}

std::optional<Unpaired> keep_paired_steps(std::vector<RankRecord>& records) {
  if (records.size() < 2) return {};
  auto unpaired = after_join(records);
  if (!unpaired) unpaired = made_apart(records);
  if (!unpaired) return {};
  for (auto& record : records)
    std::erase_if(record.steps, [&](const StepRecord& one) { return one.step >= unpaired->step; });
  return unpaired;
}

}  // namespace ddp_doctor
