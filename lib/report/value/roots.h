// SPDX-License-Identifier: BSD-3-Clause
// What ranks saw, in few bytes, to compare them with ranks of other machines: for each examined
// step one root per group of ranks that saw the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/diagnose/rank_set.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Ranks with the same bits in all tensors that the rules compare (DDP102, DDP301, DDP302).
struct RootGroup {
  // Digest of the tensors' names, types and sizes. Roots of other tensors are not comparable.
  std::string tensors;
  std::string root;  // 128 bits over all of them
  RankSet ranks;
  // Which ranks must hold the same of these tensors: empty, all ranks of the job; "0,4" as declared
  // on a mesh; or kUndeclared.
  std::string replicas;
};

// Equal roots show replicas, but ranks whose roots differ may hold other parts of the model, or
// weights that the program brings together itself.
inline constexpr char kUndeclared[] = "undeclared";

struct StepRoots {
  std::int64_t step = 0;            // 0: before the first one
  std::vector<RootGroup> gradient;  // at optimizer.step
  std::vector<RootGroup> weight;    // after it
};

std::vector<StepRoots> roots_of(const Timeline& timeline);

// Whether roots that must be equal are of the same tensors.
bool comparable(const std::vector<StepRoots>& roots);
bool comparable(const std::vector<RootGroup>& groups);
// Whether ranks hold the same wherever they must, as far as that is known of all of them.
bool all_equal(const std::vector<RootGroup>& groups);
// Whether some differ that must hold the same.
bool some_differ(const std::vector<RootGroup>& groups);

}  // namespace ddp_doctor
