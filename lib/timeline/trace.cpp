// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/trace.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace ddp_doctor {

std::vector<std::pair<std::string, int>> actions_of(const std::string& trace) {
  std::vector<std::pair<std::string, int>> actions;
  std::istringstream words(trace);
  for (std::string word; words >> word;) {
    const auto star = word.find('*');
    const int count = star == std::string::npos ? 1 : std::atoi(word.c_str() + star + 1);
    actions.emplace_back(word.substr(0, star), count);
  }
  return actions;
}

std::optional<bool> backward_of(const std::string& action, int wrapper) {
  if (action.empty() || action.front() != 'B') return {};
  std::istringstream parts(action.substr(1));
  for (std::string part; std::getline(parts, part, ',');) {
    const auto sign = part.find_first_of("+-");
    if (sign != std::string::npos && part.substr(0, sign) == std::to_string(wrapper))
      return part[sign] == '+';
  }
  return {};
}

std::vector<BackwardPass> backwards_of(const std::string& trace, int wrapper) {
  using Forward = BackwardPass::Forward;
  const std::string own = std::to_string(wrapper);
  std::vector<BackwardPass> passes;
  Forward last = Forward::kNone;
  for (const auto& [action, count] : actions_of(trace)) {
    if (action == "F" + own + "+") last = Forward::kThrough;
    if (action == "F" + own + "-") last = Forward::kNoSync;
    // If a forward bypasses the wrapper but another goes through it (a submodule called for its
    // features), the loss still comes from the wrapper.
    if (action == "N" + own && last == Forward::kNone) last = Forward::kAround;
    const auto reduced = backward_of(action, wrapper);
    if (!reduced) continue;
    for (int i = 0; i < count; ++i) {
      passes.push_back({last, *reduced});
      last = Forward::kNone;
    }
  }
  return passes;
}

bool checkpoints_reentrantly(const Timeline& timeline) {
  return std::any_of(timeline.steps.begin(), timeline.steps.end(), [](const TimelineStep& step) {
    return std::any_of(step.ranks.begin(), step.ranks.end(), [](const StepRecord* record) {
      if (record == nullptr) return false;
      const auto actions = actions_of(record->trace);
      return std::any_of(actions.begin(), actions.end(),
                         [](const auto& action) { return action.first == "R"; });
    });
  });
}

}  // namespace ddp_doctor
