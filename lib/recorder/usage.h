// SPDX-License-Identifier: BSD-3-Clause
// How the parameters took part in a step.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "lib/recorder/history.h"
#include "lib/recorder/parameter.h"

namespace ddp_doctor {

using Parameters = std::set<const Parameter*>;

// Whether a step of the optimizer that holds `own` answers for a parameter: for its own, and for
// those in its wrappers that no other optimizer holds; `elsewhere` are those that others do.
std::function<bool(const Parameter&)> covered_by(Parameters own, const Parameters& elsewhere);

// How far the forward got with a parameter that no gradient arrived at; nothing: not known.
struct Reach {
  std::optional<bool> reached;    // an operation read it
  std::optional<bool> in_output;  // an output depends on it
};

// What only the probe can see, as it is now.
struct ParameterView {
  std::function<Reach(const Parameter&)> reach;
  std::function<bool(const Parameter&)> requires_grad;
  std::function<bool(const Parameter&)> has_gradient;  // other than zeros
  // Of a managed one: a gradient, even of zeros.
  std::function<bool(const Parameter&)> has_any_gradient = {};
};

// What is known of a step beside what was counted.
struct UsageFacts {
  const Mark& begin;       // the optimizer's last step
  const Counts& counts;    // now
  const Parameters& held;  // by the optimizer
  const ParameterView& view;
};

// Nothing for those that the step says nothing about. docs/record.md describes the columns.
std::optional<Usage> usage_of(const Parameter& parameter, const UsageFacts& facts);

}  // namespace ddp_doctor
