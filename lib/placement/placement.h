// SPDX-License-Identifier: BSD-3-Clause
// Who must agree with whom: meshes of ranks, and placements on them, in the words of PyTorch's
// DeviceMesh and DTensor.
#pragma once

#include <string>
#include <vector>

namespace ddp_doctor {

using Ranks = std::vector<int>;  // ascending, each once

// An ordered set of ranks with a shape.
struct Mesh {
  std::vector<int> ranks;          // row-major
  std::vector<int> shape;          // the product is the number of ranks
  std::vector<std::string> names;  // of the dimensions; empty if they have none

  // The name of a dimension, or "dimension 0".
  std::string name_of(std::size_t dimension) const;
  // The ranks that differ from each other in this coordinate only: one group for each row.
  std::vector<Ranks> along(std::size_t dimension) const;
  bool operator==(const Mesh&) const = default;
};

// How a tensor lies on a mesh. For each dimension "Replicate": equal along it; "Shard(0)": each
// rank has another part; "Partial": each has a share of the sum; "Local": each has its own.
struct Placement {
  std::vector<std::string> kinds;  // one for each dimension of the mesh
  Mesh mesh;                       // without ranks where it is unknown
  std::string source;              // who says so: "DTensor", "fully_shard", ...
  Ranks replicas;  // where it is known without the mesh: those that hold the same part as the rank
                   // that says so

  bool replicated() const;  // along every dimension
  // The ranks of the mesh in groups that must hold the same: those that share all coordinates along
  // dimensions that are not Replicate. Nothing if the mesh is unknown.
  std::vector<Ranks> replica_groups() const;
  bool operator==(const Placement&) const = default;
};

// Ranks as one dimension of a mesh groups them: along it they differ in this coordinate only.
struct Dimension {
  std::string name;  // empty: nobody named it
  std::vector<Ranks> groups;
};

// What is known of a tensor along one dimension: its replicas, or another part on each rank.
struct Along {
  Dimension dimension;
  bool replicated = false;
};

// The ranks in groups that must hold the same, where `known` is said of some dimensions, and
// `otherwise` (a partition) of ranks that share their places along all of these.
std::vector<Ranks> replica_groups(const std::vector<Along>& known,
                                  const std::vector<Ranks>& otherwise);

// Whether each of `all` is in exactly one group.
bool is_partition(const std::vector<Ranks>& groups, const Ranks& all);

// Where nobody is a replica of another.
std::vector<Ranks> each_alone(const Ranks& all);

// "{0, 2}, {1, 3}"
std::string in_braces(const std::vector<Ranks>& groups);

}  // namespace ddp_doctor
