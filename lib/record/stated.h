// SPDX-License-Identifier: BSD-3-Clause
// Placements that the user states in ddp-doctor.toml, as run.json keeps them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ddp_doctor {

// How parameters lie along dimensions of the mesh of ranks: by its name, "replicate" or "shard".
using StatedKinds = std::map<std::string, std::string>;

inline constexpr char kStatedReplicate[] = "replicate";
inline constexpr char kStatedShard[] = "shard";

struct StatedPlacements {
  std::vector<int> mesh_shape;  // of all ranks, row-major; empty: as the program's DeviceMesh
  std::vector<std::string> mesh_dim_names;
  // By shell pattern of their names, in the order of the file: the last one that matches decides.
  std::vector<std::pair<std::string, StatedKinds>> parameters;

  bool empty() const { return parameters.empty() && mesh_shape.empty(); }
};

}  // namespace ddp_doctor
