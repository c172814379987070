// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/doubts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ddp_doctor {
namespace {

// Where the order of the samples changes more of a gradient, it is not rounding that does it.
constexpr double kMostRounding = 0.05;

// Why one process would compute something else if it did it again; empty if it would not.
std::string irreproducible(const Comparison& comparison) {
  for (const auto& where : comparison.figures().random) {
    if (where.starts_with("in ")) return "random numbers are drawn " + where;
  }
  if (comparison.changes())
    return "one process computes other gradients in a later step, on the same samples and with "
           "the same weights: the program counts its steps, as to anneal a term of its loss or "
           "to freeze a layer, carries something else from one step to the next, or computes its "
           "loss from data that neither a DataLoader nor a model or loss function got";
  return {};
}

}  // namespace

bool changes_with_steps(const ParityFigures& figures) {
  return std::any_of(figures.steps.begin(), figures.steps.end(), [&](const ParityStep& step) {
    if (!step.again) return false;
    const Products total = total_of(step);
    return std::any_of(step.parameters.begin(), step.parameters.end(), [&](const auto& parameter) {
      const auto& products = parameter.products;
      return products.distance(*step.again, kOfOne) >
             least_allowed(products, total, floor_of(figures));
    });
  });
}

std::string unusable(const Comparison& comparison) {
  const double rounding = comparison.compared().rounding;
  if (comparison.changes() || rounding <= kMostRounding) return {};
  if (const auto reason = irreproducible(comparison); !reason.empty()) return reason;
  return fmt::format(
      "in step {} the order of the samples alone changes the gradients of one process by "
      "{:.0f} %, which is more than rounding: what it computes depends on this order, on "
      "chance, or on data that neither a DataLoader nor a model or loss function got",
      comparison.step().step, 100 * std::min(1.0, rounding));
}

std::string doubt_about(const Comparison& comparison) {
  const auto& step = comparison.step();
  const auto& figures = comparison.figures();
  const auto& total = comparison.total();
  if (const auto reason = irreproducible(comparison); !reason.empty()) return reason;
  if (step.apart)
    return fmt::format(
        "in step {} the ranks step with gradients of their own, as between the averages of local "
        "SGD, so there is none of all ranks to compare",
        step.step);
  if (!figures.frozen_differ.empty())
    return fmt::format(
        "{}, which no optimizer holds, has other weights on each rank, and one process has those "
        "of rank 0",
        fmt::join(figures.frozen_differ, ", "));
  if (!figures.random.empty() && !step.parameters.empty() && total.norm(kOfOne) == 0)
    return "one process has no gradients on these samples";
  if (step.padded && !step.alone.empty() &&
      total.distance(step.padded->alone, step.padded->padded) > comparison.allowed(total))
    return "the ranks' samples have different lengths, and padding them to the longest changes "
           "what the model computes";
  if (step.module && step.module->type == "input")
    return "the model gets other inputs in one process than the ranks' samples give it";
  return {};
}

}  // namespace ddp_doctor
