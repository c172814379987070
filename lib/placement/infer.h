// SPDX-License-Identifier: BSD-3-Clause
// Guesses about tensors whose placement nobody declared, from the values that they begin with. A
// finding that rests on one is at most likely.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/placement/placement.h"

namespace ddp_doctor {

// A tensor that nobody declared: the ranks in groups that begin with the same values.
struct Undeclared {
  std::string module;  // that holds it
  std::vector<Ranks> alike;
  std::vector<std::int64_t> sizes = {};
  bool constant = false;   // all its elements begin with one value, such as zero
  bool apart = false;      // the ranks that have it do not all begin with the same values
  bool embedding = false;  // by its name: the first and the last stage of a pipeline may share it
};

// For each tensor the ranks that must hold the same; empty: all of them. A module one of whose
// tensors begins apart is a shard, and so are its other tensors, such as a bias of zeros, but for
// what begins alike and has sizes of whole tensors only. A constant elsewhere is a shard, too, if
// it has a size that only shards have, such as LoRA's B beside one.
std::vector<std::vector<Ranks>> infer_replicas(const std::vector<Undeclared>& tensors);

// The same where the ranks are stages of a pipeline: tensors of one name are of different layers,
// unless they begin alike and not as constants. Where no such tensor begins apart, one seed has
// made the stages alike, but for an embedding that they share beside layers that only some have:
// `certain_stages`, if the ranks are known to be stages all the same.
std::vector<std::vector<Ranks>> infer_in_stages(const std::vector<Undeclared>& tensors,
                                                bool certain_stages = false);

// Meshes side by side, whose tensors lie on each of them alike: the ranks at the same place of all
// meshes, with those that are its replicas there. Empty if the meshes differ in shape.
std::vector<Ranks> side_by_side(const std::vector<Placement>& placements);

}  // namespace ddp_doctor
