// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/usage.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddp_doctor {

std::function<bool(const Parameter&)> covered_by(Parameters own, const Parameters& elsewhere) {
  Parameters others;
  std::set_difference(elsewhere.begin(), elsewhere.end(), own.begin(), own.end(),
                      std::inserter(others, others.end()));
  std::set<int> wrappers;
  for (const Parameter* parameter : own) wrappers.insert(parameter->in_wrapper);
  return [own = std::move(own), others = std::move(others),
          wrappers = std::move(wrappers)](const Parameter& parameter) {
    if (!parameter.is_parameter || others.contains(&parameter)) return false;
    return own.contains(&parameter) || others.empty() || wrappers.contains(parameter.in_wrapper);
  };
}

std::optional<Usage> usage_of(const Parameter& parameter, const UsageFacts& facts) {
  const Counts& before = facts.begin.counts;
  const Counts& counts = facts.counts;
  const bool requires_grad = facts.view.requires_grad(parameter);
  if (!parameter.trainable && parameter.arrivals == 0 && !requires_grad) return {};
  if (parameter.since > before.backwards) return {};         // what it got before that is not known
  if (parameter.managed && parameter.numel == 0) return {};  // this rank has no part of it
  // A reduction, or a hand-written collective after a backward, gives an unused parameter the
  // gradients of other ranks.
  const bool shared = counts.reduced > before.reduced || (counts.backwards > before.backwards &&
                                                          counts.collectives > before.collectives);
  Usage usage;
  usage.tensor = parameter.id;
  usage.arrivals = parameter.managed
                       ? static_cast<int>(facts.view.has_any_gradient(parameter))
                       : static_cast<int>(parameter.arrivals - parameter.arrivals_at_step);
  usage.used = usage.arrivals > 0;
  if (usage.used) {
    usage.reached = usage.in_output = true;
  } else {
    const auto [reached, in_output] = facts.view.reach(parameter);
    usage.reached = reached;
    usage.in_output = in_output;
  }
  usage.frozen = parameter.trainable && !requires_grad;
  usage.last_backward =
      static_cast<int>(std::max<std::int64_t>(0, parameter.last_backward - before.backwards));
  usage.replaced = parameter.replaced;
  usage.in_optimizer = facts.held.contains(&parameter);
  usage.assigned = !usage.used && !shared && facts.view.has_gradient(parameter);
  return usage;
}

}  // namespace ddp_doctor
