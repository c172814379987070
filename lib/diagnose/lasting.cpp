// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/lasting.h"

#include <algorithm>
#include <iterator>

namespace ddp_doctor {
namespace {

// Each of these judges single steps, or the state before the first one, and counts those that are
// wrong: more steps can only add to them. The others wait for the end of the run:
//   102, 103, 104, 112, 301  weights may still be averaged (local SGD)
//   106, 306                 wrappers and parameters may still be made on the other ranks
//   107, 401                 a factor, or equal data, must hold in every step
//   111, 5xx                 need the end of a run that cannot go on
//   2xx, 307                 a parameter may still be used
//   303, 305                 buffers and weights may still be brought together
//   404                      set_epoch may still be called
//   113, 405                 advice
constexpr std::string_view kLasting[] = {
    "DDP101",  // a step whose forward bypassed the wrapper, and whose gradients differ
    "DDP105",  // a step with replaced parameters, and gradients that differ
    "DDP108",  // a step with another factor on each rank
    "DDP109",  // a step with a backward that was not reduced, and gradients that differ
    "DDP110",  // a step with assigned gradients that differ
    "DDP302",  // the weights before the first step; what is rank-local shows in that step
    "DDP304",  // the optimizers of a step
    "DDP402",  // weights that are not finite
    "DDP403",  // the scalers of a step
};

}  // namespace

bool is_lasting(std::string_view rule) {
  return std::find(std::begin(kLasting), std::end(kLasting), rule) != std::end(kLasting);
}

std::vector<Finding> lasting(std::vector<Finding> findings) {
  std::erase_if(findings, [](const Finding& finding) {
    return finding.certainty != Certainty::kCertain || finding.severity < Severity::kWarning ||
           !is_lasting(finding.rule);
  });
  return findings;
}

}  // namespace ddp_doctor
