// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a job lie on a mesh, and its parameters on the ranks. Empty in plain data
// parallelism.
#pragma once

#include <string>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Parameters that lie alike.
struct PlacedAlike {
  std::vector<std::string> along;  // one for each dimension: "Replicate", "Shard(0)", "Shard", ...
  std::string source;              // "DTensor", "stated", "inferred", ...
  std::vector<Ranks> replicas;     // ranks that hold the same
  std::vector<std::string> parameters;
};

struct MeshMap {
  std::vector<Dimension> dimensions;
  std::vector<PlacedAlike> placements;  // the most frequent one first

  bool empty() const { return placements.empty(); }
  // Where there are several dimensions: those along which some parameter has replicas.
  std::vector<std::size_t> replicated_along() const;
};

MeshMap mesh_map_of(const Timeline& timeline);

// "{0-7}, {8-15}, ... (128 groups)"
std::string some_groups(const std::vector<Ranks>& groups);
// "tp", or "dimension 1" of those without a name.
std::string name_of(const MeshMap& map, std::size_t dimension);

}  // namespace ddp_doctor
