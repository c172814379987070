// SPDX-License-Identifier: BSD-3-Clause
// How a program spreads its tensors over the ranks, where that is not data parallelism: what is
// declared (docs/record.md, facts of "placement"), and what its communication shows.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/placement/placement.h"
#include "lib/record/reader.h"
#include "lib/record/stated.h"

namespace ddp_doctor {

// What some ranks declare of a tensor.
struct Declared {
  Placement placement;
  Ranks by;
};

struct Layout {
  // By name, without the model's label. Ranks differ where each declares a mesh of its own.
  std::map<std::string, std::vector<Declared>> placements;
  // Of gradients at optimizer.step that lie otherwise than their parameters.
  std::map<std::string, std::vector<Declared>> gradients;
  // What the user states of parameters, along dimensions of the mesh.
  std::map<std::string, std::vector<Along>> stated;
  std::vector<Dimension> dimensions;  // of the meshes, those that have names
  std::vector<std::string> notes;     // statements that name nothing
  // Models that no wrapper and no optimizer holds, such as a teacher: how many tensors they have.
  std::map<std::string, std::size_t> unexamined;
  // Why ranks may hold different parts of one model, or see the same data, on purpose; empty in
  // data parallelism, whose parameters may be sharded.
  std::string model_parallel;
  bool own_models = false;  // it is what each rank trains for itself, which may be a mistake, too
  bool pipeline = false;    // the ranks are stages of one
  // Data parallelism that reduces gradients into shards: the local ones are not seen.
  bool reduces_into_shards = false;
  // Part of the ranks share what fully_shard spreads over them; the others may have replicas of it.
  bool meshes_side_by_side = false;

  // Whether every rank has all of each tensor, as far as anything is declared.
  bool replicated() const;
};

// The ranks that must hold the same, in groups; empty where that is not declared for each of `all`.
std::vector<Ranks> replica_groups(const std::vector<Declared>& declared, const Ranks& all);

bool is_point_to_point(const Collective& call);
// The program itself reduces most of its gradients over all ranks, between backward and step. One
// that two stages of a pipeline share is reduced, too.
bool reduces_over_all(const RankRecord& record);

Layout layout_of(const std::map<int, const RankRecord*>& records, const StatedPlacements& stated);

// Of a fact of "mesh"; no ranks if it is damaged.
Mesh mesh_in(const std::string& fact);

// "layer.weight" of "Model:layer.weight"
std::string name_in_model(const std::string& name);

}  // namespace ddp_doctor
