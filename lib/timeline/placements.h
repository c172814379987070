// SPDX-License-Identifier: BSD-3-Clause
// How a program spreads its tensors over the ranks, where that is not data parallelism: what is
// declared (docs/record.md, facts of "placement"), and what its communication shows.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/record/reader.h"

namespace ddp_doctor {

// One of the placements of PyTorch's DTensor for each dimension of a mesh of ranks.
struct Placement {
  std::vector<std::string> placements;  // "Replicate", "Shard(0)", "Partial", "Local"
  std::set<int> ranks;                  // of the mesh; empty if they are unknown
  std::string source;                   // who declares it: "DTensor", "fully_shard", ...

  bool replicated() const;  // every rank of the mesh has all of it
};

struct Layout {
  std::map<std::string, Placement> placements;  // by name, without the model's label
  // Models that no wrapper and no optimizer holds, such as a teacher: how many tensors they have.
  std::map<std::string, std::size_t> unexamined;
  // Why ranks may hold different parts of one model, or see the same data, on purpose; empty in
  // data parallelism, whose parameters may be sharded.
  std::string model_parallel;
};

bool is_point_to_point(const Collective& call);
// Between backward and step, over all ranks, and larger than a metric.
bool synchronizes_all(const Collective& call);

Layout layout_of(const std::map<int, const RankRecord*>& records);

// "layer.weight" of "Model:layer.weight"
std::string name_in_model(const std::string& name);

}  // namespace ddp_doctor
