// SPDX-License-Identifier: BSD-3-Clause
// How the parameters took part in a step.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <unordered_set>
#include <vector>

#include "lib/recorder/history.h"
#include "lib/recorder/parameter.h"

namespace ddp_doctor {

using Parameters = std::set<const Parameter*>;

// Whether a step of the optimizer that holds `own` answers for a parameter: for its own, and for
// those in its wrappers that no other optimizer holds; `elsewhere` are those that others do.
std::function<bool(const Parameter&)> covered_by(Parameters own, const Parameters& elsewhere);

// What the probe knows of a step beside what was counted.
struct UsageFacts {
  Mark begin;                                // the optimizer's last step
  const Counts& counts;                      // now
  Parameters held;                           // by the optimizer
  bool reads_are_seen;                       // so that "not read" means something
  const std::unordered_set<int>* in_output;  // ids that an output depends on; null: not looked
  // Of the tensors now.
  std::function<bool(const Parameter&)> requires_grad;
  std::function<bool(const Parameter&)> has_gradient;  // other than zeros
};

// Nothing for those that the step says nothing about. docs/record.md describes the columns.
std::optional<Usage> usage_of(const Parameter& parameter, const UsageFacts& facts);

}  // namespace ddp_doctor
