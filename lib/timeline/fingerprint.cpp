#include "lib/timeline/fingerprint.h"

#include <algorithm>
#include <set>

namespace ddp_doctor {

Fingerprint::Fingerprint(const Timeline& timeline) {
  const auto ranks = static_cast<std::size_t>(timeline.run.world_size);
  for (const auto& step : timeline.steps) {
    if (step.number > 0 && !step.examined()) continue;
    auto& seen_in_step = steps_[step.number];
    for (const auto& tensor : timeline.tensors) {
      if (tensor.kind != "parameter") continue;
      Seen seen{ByRank(ranks), ByRank(ranks), std::vector<std::optional<bool>>(ranks)};
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto look = [&](Stage stage, ByRank& into) {
          const auto* found = step.find(static_cast<int>(rank), tensor.id, stage);
          if (found != nullptr) into[rank] = found->digest.bits;
        };
        look(Stage::kGradient, seen.gradient);
        look(Stage::kWeight, seen.weight);
        if (const auto* usage = step.usage(static_cast<int>(rank), tensor.id))
          seen.used[rank] = usage->used;
      }
      seen_in_step.emplace(tensor.name, std::move(seen));
    }
  }
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
