// DDP304: the ranks' optimizers have different hyper-parameters.

#include <fmt/format.h>

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

// The first hyper-parameter that is not the same on every rank; `groups` by rank.
std::optional<Difference> difference(const std::vector<json>& groups) {
  for (std::size_t g = 0; g < groups.front().size(); ++g) {
    for (const auto& [key, value] : groups.front()[g].items()) {
      Difference found{key, g, {}};
      bool differs = false;
      for (const auto& rank : groups) {
        const json other = g < rank.size() ? rank[g].value(key, json()) : json();
        differs = differs || other != value;
        found.by_rank.push_back(other.dump());
      }
      if (differs) return found;
    }
  }
  return {};
}

Verdict check(const Timeline& timeline) {
  if (timeline.run.world_size < 2) return Undecidable{"there is only one rank, nothing to compare"};
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || !step.complete()) continue;
    const int optimizer = step.ranks.front()->optimizer;
    const std::string subject = "optimizer " + std::to_string(optimizer);
    std::vector<json> groups;
    for (int rank : all_ranks(timeline)) {
      const auto* fact = timeline.fact(rank, subject, "groups", step.number);
      if (fact != nullptr) groups.push_back(json::parse(fact->value));
    }
    if (groups.size() != step.ranks.size()) continue;
    const auto found = difference(groups);
    if (!found) continue;

    Finding finding = finding_of(kOptimizerDiffers);
    finding.where = where(timeline, "step");
    finding.ranks = all_ranks(timeline);
    finding.first_step = step.number;
    finding.evidence["hyper_parameter"] = found->name;
    finding.evidence["group"] = found->group;
    finding.evidence["by_rank"] = found->by_rank;
    std::string values;
    for (const auto& value : found->by_rank) values += (values.empty() ? "" : ", ") + value;
    finding.message = fmt::format(
        "From step {} on the ranks step with different optimizers: {} is {} (by rank, group {}).",
        step.number, found->name, values, found->group);
    finding.prescription = {
        "Let every rank decide on the same numbers: average the loss or metric over all ranks "
        "before "
        "scheduler.step(metric), and load optimizer and scheduler state on every rank.",
        ""};
    return std::vector{finding};
  }
  return std::vector<Finding>{};
}

}  // namespace

const Rule kOptimizerDiffers = {"DDP304", "optimizer-differs", Severity::kError,
                                "hyper-parameters differ across ranks", check};

}  // namespace ddp_doctor
