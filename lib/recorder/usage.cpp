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
  std::set<std::optional<int>> wrappers;
  for (const Parameter* parameter : own) wrappers.insert(parameter->info.wrapper);
  return [own = std::move(own), others = std::move(others),
          wrappers = std::move(wrappers)](const Parameter& parameter) {
    if (!parameter.is_parameter() || others.contains(&parameter)) return false;
    return own.contains(&parameter) || others.empty() || wrappers.contains(parameter.info.wrapper);
  };
}

std::optional<Usage> usage_of(const Parameter& parameter, const UsageFacts& facts) {
  const Counts& before = facts.begin.counts;
  const Counts& counts = facts.counts;
  const bool requires_grad = facts.requires_grad(parameter);
  if (!parameter.info.trainable && parameter.arrivals == 0 && !requires_grad) return {};
  if (parameter.since > before.backwards) return {};  // what it got before that is not known
  // A reduction, or a hand-written collective after a backward, gives an unused parameter the
  // gradients of other ranks.
  const bool shared = counts.reduced > before.reduced || (counts.backwards > before.backwards &&
                                                          counts.collectives > before.collectives);
  Usage usage;
  usage.tensor = parameter.id();
  usage.arrivals = parameter.arrivals - parameter.arrivals_at_step;
  usage.used = usage.arrivals > 0;
  if (usage.used) {
    usage.reached = usage.in_output = true;
  } else {
    if (facts.in_output != nullptr) usage.in_output = facts.in_output->contains(parameter.id());
    if (facts.reads_are_seen) usage.reached = parameter.read || usage.in_output.value_or(false);
  }
  usage.frozen = parameter.info.trainable && !requires_grad;
  usage.last_backward = std::max(0, parameter.last_backward - before.backwards);
  usage.replaced = parameter.replaced;
  usage.in_optimizer = facts.held.contains(&parameter);
  usage.assigned = !usage.used && !shared && facts.has_gradient(parameter);
  return usage;
}

}  // namespace ddp_doctor
