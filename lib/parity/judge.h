// SPDX-License-Identifier: BSD-3-Clause
// From figures to findings: is what the ranks compute what one process computes on the same
// samples?
//
// A difference counts beyond a multiple of what rounding alone does, which is measured: the
// distance between the gradients of one process on the same samples in two orders.
#pragma once

#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/parity/figures.h"

namespace ddp_doctor {

// One compared step. Distances are relative to the length of one process' gradient.
struct ComparedStep {
  std::int64_t step = 0;
  std::size_t parameters = 0;
  std::size_t equal = 0;  // within rounding
  double distance = 0.0;  // of all gradients together
  double rounding = 0.0;  // by the order of the samples alone
};

struct Parity {
  std::string inconclusive;  // why it cannot be told; empty if it can
  std::vector<ComparedStep> steps;
  std::vector<Finding> findings;  // of the first step that differs; at most one
  std::vector<std::string> notes;
};

Parity judge_parity(const ParityFigures& figures, int world_size);

// In one sentence: "gradients of 2 ranks are those of one process: ..."; for a report that has no
// finding about them, or had it ignored.
std::string summary_of(const Parity& parity, int world_size);

}  // namespace ddp_doctor
