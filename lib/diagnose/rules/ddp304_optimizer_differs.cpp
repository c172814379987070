// SPDX-License-Identifier: BSD-3-Clause
// DDP304: the ranks' optimizers have different hyper-parameters or different state.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

using nlohmann::json;

struct Difference {
  std::string name;  // "lr"
  std::size_t group = 0;
  std::vector<std::string> by_rank;
};

// To six digits, unless the values differ only in later ones.
std::vector<std::string> in_words(const std::vector<json>& values) {
  std::vector<std::string> texts;
  for (const auto& value : values)
    texts.push_back(value.is_number_float() ? fmt::format("{:.6g}", value.get<double>())
                                            : value.dump());
  if (std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts[0]; }))
    std::transform(values.begin(), values.end(), texts.begin(),
                   [](const json& value) { return value.dump(); });
  return texts;
}

// The first hyper-parameter that is not the same on every rank; `groups` by rank.
std::optional<Difference> difference(const std::vector<json>& groups) {
  for (std::size_t g = 0; g < groups.front().size(); ++g) {
    for (const auto& entry : groups.front()[g].items()) {
      const std::string& key = entry.key();
      std::vector<json> by_rank;
      for (const auto& rank : groups)
        by_rank.push_back(g < rank.size() ? rank[g].value(key, json()) : json());
      if (std::any_of(by_rank.begin(), by_rank.end(),
                      [&](const json& other) { return other != by_rank.front(); }))
        return Difference{key, g, in_words(by_rank)};
    }
  }
  return {};
}

// The optimizer's fact at `step`, by rank; empty if some rank did not record it.
std::vector<json> facts_of(const Timeline& timeline, int optimizer, const char* key,
                           std::int64_t step) {
  std::vector<json> facts;
  for (int rank : timeline.ranks()) {
    const auto* fact = timeline.fact(rank, fmt::format("optimizer {}", optimizer), key, step);
    if (fact == nullptr) return {};
    facts.push_back(json::parse(fact->value));
  }
  return facts;
}

std::optional<Finding> in_hyper_parameters(const Timeline& timeline, const TimelineStep& step) {
  const auto groups = facts_of(timeline, step.first()->optimizer, "groups", step.number);
  if (groups.empty()) return {};
  const auto found = difference(groups);
  if (!found) return {};
  Finding finding = finding_of(kOptimizerDiffers);
  finding.evidence["hyper_parameter"] = found->name;
  finding.evidence["group"] = found->group;
  finding.evidence["by_rank"] = found->by_rank;
  std::string values;
  for (const auto& value : found->by_rank) values += (values.empty() ? "" : ", ") + value;
  finding.message = fmt::format(
      "From step {} on, the ranks' optimizers have different hyper-parameters: {} is {} (by rank, "
      "group {}).",
      step.number, found->name, values, found->group);
  finding.prescription = {
      "Use the same values on every rank: average the loss or metric over all ranks before "
      "scheduler.step(metric), and load the optimizer and scheduler state on every rank.",
      ""};
  return finding;
}

// State such as momentum: each rank records it at its first step and after each load.
std::optional<Finding> in_state(const Timeline& timeline, const TimelineStep& step) {
  const auto states = facts_of(timeline, step.first()->optimizer, "state", step.number);
  if (states.empty() || std::all_of(states.begin(), states.end(),
                                    [&](const json& state) { return state == states.front(); }))
    return {};
  Finding finding = finding_of(kOptimizerDiffers);
  std::string counts;
  for (const auto& state : states) {
    finding.evidence["parameters_with_state"].push_back(state.at(0).get<int>());
    counts += fmt::format("{}{}", counts.empty() ? "" : ", ", state.at(0).get<int>());
  }
  finding.message = fmt::format(
      "From step {} on, the ranks' optimizers have different state (momentum, moments), or only "
      "some ranks loaded it. Parameters with state, by rank: {}.",
      step.number, counts);
  finding.prescription = {"Load the optimizer state from the same file on every rank, or on none.",
                          ""};
  return finding;
}

// Stages of a pipeline that have no parameter in common may train as each pleases.
bool trains_apart(const Timeline& timeline) {
  if (!timeline.layout.pipeline) return false;
  const auto ids = timeline.trainable();
  return std::none_of(ids.begin(), ids.end(), [&](int id) {
    const auto& groups = timeline.replicas_of(id, Stage::kWeight);
    return std::any_of(groups.begin(), groups.end(),
                       [](const Ranks& ranks) { return ranks.size() > 1; });
  });
}

Verdict check_optimizer_differs(const Timeline& timeline) {
  if (trains_apart(timeline)) return std::vector<Finding>{};
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || !step.complete()) continue;
    auto finding = in_hyper_parameters(timeline, step);
    if (!finding) finding = in_state(timeline, step);
    if (!finding) continue;
    finding->ranks = timeline.ranks();
    finding->first_step = step.number;
    finding->where = where_stepped(timeline, step.number);
    return std::vector{*finding};
  }
  return std::vector<Finding>{};
}

}  // namespace

const Rule kOptimizerDiffers = {
    .code = "DDP304",
    .name = "optimizer-differs",
    .severity = Severity::kError,
    .headline = "hyper-parameters or optimizer state differ across ranks",
    .check = check_optimizer_differs,
    .needs = {.ranks = 2},
    .lasting = true,
    .explains = {{&kWeightsDrift}}};

}  // namespace ddp_doctor
