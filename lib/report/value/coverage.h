// SPDX-License-Identifier: BSD-3-Clause
// What a verdict covers: how much of the program was compared across ranks, and whether that
// proves anything.
#pragma once

#include <cstddef>
#include <string>

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

struct Coverage {
  std::size_t compared = 0;  // parameters that are to be the same on several ranks
  std::size_t shards = 0;    // parameters of which each rank holds another part: seen to train
  std::size_t left_out = 0;  // tensors that were not compared: the notes say which, and why
  std::string nothing;       // why finding nothing proves nothing; empty if it does
};

Coverage coverage_of(const Timeline& timeline, const Diagnosis& diagnosis);

}  // namespace ddp_doctor
