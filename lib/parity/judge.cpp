// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/diagnose/facts.h"
#include "lib/parity/causes.h"
#include "lib/parity/comparison.h"
#include "lib/parity/doubts.h"

namespace ddp_doctor {

Parity judge_parity(const ParityFigures& figures, int world_size) {
  Parity parity;
  parity.inconclusive = figures.impossible;
  if (!figures.steps.empty())
    parity.notes.emplace_back(
        "changed in both runs: dropout, stochastic depth, torch.compile and TF32 are off; the one "
        "process is given the samples and the weights of the ranks");
  const bool changes = changes_with_steps(figures);
  if (figures.dealt || changes)
    parity.notes.push_back(fmt::format(
        "{}: what rounding alone does could not be measured, and {:.0e} of a gradient is allowed "
        "for it",
        figures.dealt ? "the program deals its data out to its ranks, and as one process it took "
                        "the same samples by itself"
                      : "one process computes other gradients in later steps, on the same samples "
                        "and with the same weights",
        floor_of(figures)));
  bool any = false;
  std::string not_usable;  // some step: then the others agree by luck
  for (const auto& step : figures.steps) {
    const Comparison comparison(step, figures, changes);
    std::string doubt = unusable(comparison);
    if (not_usable.empty() && !figures.low_precision) not_usable = doubt;
    parity.steps.push_back(comparison.compared());
    any = any || comparison.has_gradients();
    if (!step.not_told.empty()) {
      std::vector<FindingParameter> untold;
      for (const auto& name : step.not_told) untold.push_back({name, {}});
      const std::string note = fmt::format(
          "not compared with one process: {}, whose gradients could not be put together "
          "from the ranks' parts, or which had none on the ranks",
          list_of(untold, kNamed));
      if (std::find(parity.notes.begin(), parity.notes.end(), note) == parity.notes.end())
        parity.notes.push_back(note);
    }
    if (!parity.findings.empty()) continue;
    if (doubt.empty() && comparison.different().empty()) continue;
    if (doubt.empty()) doubt = doubt_about(comparison);
    if (doubt.empty()) {
      parity.findings = causes_of(comparison, world_size);
    } else if (parity.inconclusive.empty()) {
      parity.inconclusive = doubt;
    }
  }
  if (!not_usable.empty()) {
    parity.findings.clear();
    if (parity.inconclusive.empty()) parity.inconclusive = not_usable;
  }
  if (parity.inconclusive.empty() && !any)
    parity.inconclusive = "no parameter has a gradient that could be compared";
  return parity;
}

std::string summary_of(const Parity& parity, int world_size) {
  if (!parity.inconclusive.empty())
    return "cannot be compared with one process: " + parity.inconclusive;
  double distance = 0, rounding = 0;
  ComparedStep worst;  // optimizers that step in turn hold different parameters
  for (const auto& step : parity.steps) {
    const auto order = [](const ComparedStep& of) {
      return std::pair(of.parameters - of.equal, of.parameters);
    };
    if (order(step) >= order(worst)) worst = step;
    distance = std::max(distance, step.distance);
    rounding = std::max(rounding, step.rounding);
  }
  const bool differ = worst.equal < worst.parameters;
  return fmt::format(
      "gradients of {} are {}those of one process{}: {} of {} parameters within rounding in {} "
      "(largest difference {:.1e}; rounding alone {:.1e})",
      count_of(static_cast<std::size_t>(world_size), "rank"), differ ? "not " : "",
      differ ? ", and the finding is ignored" : "", worst.equal, worst.parameters,
      count_of(parity.steps.size(), "step"), distance, rounding);
}

}  // namespace ddp_doctor
