// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/fingerprint.h"

#include <algorithm>
#include <set>

namespace ddp_doctor {
namespace {

// The tensors of a step, while it is held in memory.
struct ObservedStep {
  std::int64_t number;
  std::shared_ptr<const StepDetails> details;
};

struct Parameter {
  int tensor;
  std::string name;
};

Fingerprint::Steps read(const std::vector<ObservedStep>& steps,
                        const std::vector<Parameter>& parameters, std::size_t ranks) {
  Fingerprint::Steps bits;
  for (const auto& step : steps) {
    auto& seen_in_step = bits[step.number];
    for (const auto& parameter : parameters) {
      Fingerprint::Seen seen{Fingerprint::ByRank(ranks), Fingerprint::ByRank(ranks),
                             std::vector<std::optional<bool>>(ranks)};
      for (std::size_t i = 0; step.details != nullptr && i < ranks; ++i) {
        const int rank = static_cast<int>(i);
        const auto look = [&](Stage stage, Fingerprint::ByRank& into) {
          const auto found = step.details->digest(rank, parameter.tensor, stage);
          if (found) into[i] = found->bits;
        };
        look(Stage::kGradient, seen.gradient);
        look(Stage::kWeight, seen.weight);
        if (const auto usage = step.details->usage(rank, parameter.tensor))
          seen.used[i] = usage->used;
      }
      seen_in_step.emplace(parameter.name, std::move(seen));
    }
  }
  return bits;
}

}  // namespace

std::function<Fingerprint()> Fingerprint::later(const Timeline& timeline) {
  std::vector<ObservedStep> steps;
  for (const auto& step : timeline.steps) {
    if (step.number == 0 || step.examined()) steps.push_back({step.number, step.details});
  }
  std::vector<Parameter> parameters;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter") parameters.push_back({tensor.id, tensor.name});
  }
  return [steps = std::move(steps), parameters = std::move(parameters),
          ranks = static_cast<std::size_t>(timeline.run.world_size)] {
    return Fingerprint(read(steps, parameters, ranks));
  };
}

Fingerprint::Comparison Fingerprint::compare(const Fingerprint& a, const Fingerprint& b) {
  Comparison result;
  std::set<std::string> names;
  for (const auto& [number, in_a] : a.steps_) {
    const auto found = b.steps_.find(number);
    if (found == b.steps_.end()) continue;
    result.steps += number > 0;
    // Gradients come before weights: whichever differs first.
    for (const Stage stage : {Stage::kGradient, Stage::kWeight}) {
      for (const auto& [name, seen] : in_a) {
        const auto other = found->second.find(name);
        if (other == found->second.end()) continue;
        names.insert(name);
        const auto& mine = stage == Stage::kGradient ? seen.gradient : seen.weight;
        const auto& theirs =
            stage == Stage::kGradient ? other->second.gradient : other->second.weight;
        for (std::size_t rank = 0; rank < std::min(mine.size(), theirs.size()); ++rank) {
          if (!result.parting && mine[rank] && theirs[rank] && mine[rank] != theirs[rank])
            result.parting = Place{number, stage, static_cast<int>(rank), name};
        }
      }
    }
  }
  result.parameters = names.size();
  return result;
}

}  // namespace ddp_doctor
