// SPDX-License-Identifier: BSD-3-Clause
// For each tensor the ranks that must hold the same of it, where these are not all ranks.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "lib/placement/placement.h"
#include "lib/record/record.h"

namespace ddp_doctor {

// Who says so: PyTorch (DTensor, fully_shard, ...), the user, or nobody.
enum class PlacementSource { kDeclared, kStated, kInferred };

struct ReplicaGroups {
  struct Of {
    std::vector<Ranks> weight;
    std::vector<Ranks> gradient;  // at optimizer.step; there it may still be Partial
    PlacementSource source = PlacementSource::kDeclared;
  };
  std::map<int, Of> of;  // by tensor

  // Null: all ranks, or what the timeline says of all tensors.
  const std::vector<Ranks>* find(int tensor, Stage stage) const {
    const auto found = of.find(tensor);
    if (found == of.end()) return nullptr;
    return stage == Stage::kGradient ? &found->second.gradient : &found->second.weight;
  }

  // Of these ranks only.
  ReplicaGroups among(const Ranks& ranks) const {
    ReplicaGroups some = *this;
    for (auto& [tensor, own] : some.of) {
      for (auto* groups : {&own.weight, &own.gradient}) {
        for (auto& group : *groups)
          std::erase_if(group, [&](int rank) {
            return !std::binary_search(ranks.begin(), ranks.end(), rank);
          });
        std::erase_if(*groups, [](const Ranks& group) { return group.empty(); });
      }
    }
    return some;
  }
};

}  // namespace ddp_doctor
