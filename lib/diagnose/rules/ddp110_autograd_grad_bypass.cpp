// SPDX-License-Identifier: BSD-3-Clause
// DDP110: gradients that torch.autograd.grad or a functional API computed and the program assigned
// to the parameters. The reducer's hooks do not fire for them.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// The gradient of the step before, on which an optimizer steps again.
bool is_left_over(const Timeline& timeline, const TimelineStep& step, int id) {
  const auto* before = timeline.step(step.number - 1);
  if (before == nullptr || !before->examined()) return false;
  const auto was = before->find(step.first_rank(), id, Stage::kGradient);
  const auto is = step.find(step.first_rank(), id, Stage::kGradient);
  return was && is && was->bits == is->bits;
}

// The program reduced as many numbers in this step, if not with the result that it should have.
bool reduces(const Timeline& timeline, const TimelineStep& step, const std::set<int>& ids) {
  std::int64_t needed = 0, sent = 0;
  for (const int id : ids) needed += timeline.tensors[static_cast<std::size_t>(id)].numel;
  for (const auto& call : step.first()->calls) {
    if (call.op.find("reduce") != std::string::npos && call.moment != "forward")
      sent += call.numel * call.count;
  }
  return sent >= needed;
}

Verdict check_autograd_grad_bypass(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kAutogradGradBypass);
  std::set<int> parameters;
  std::size_t affected = 0;
  int optimizer = 0;  // that steps on them first
  for (const auto* step : steps) {
    std::set<int> here;
    for (int id : differing(timeline, *step, Stage::kGradient)) {
      const auto usage = step->usage(step->first_rank(), id);
      if (usage && usage->assigned && !usage->used && !is_left_over(timeline, *step, id))
        here.insert(id);
    }
    if (here.empty() || reduces(timeline, *step, here)) continue;
    ++affected;
    parameters.insert(here.begin(), here.end());
    if (!finding.first_step) {
      finding.first_step = step->number;
      optimizer = step->first()->optimizer;
    }
  }
  if (affected == 0) return std::vector<Finding>{};
  // A strategy finds no gradients in such a program.
  const auto* type =
      timeline.fact(timeline.first_rank(), fmt::format("optimizer {}", optimizer), "type");
  const bool by_hand = type != nullptr && type->value == "\"HandWrittenUpdate\"";
  const bool all = parameters.size() == timeline.trainable().size();
  finding.where = where(timeline, "autograd.grad");
  const bool by_autograd = finding.where.has_value();
  if (!by_autograd) finding.where = where(timeline, fmt::format("step {}", optimizer));
  finding.ranks = timeline.ranks();
  if (!all) finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["parameters_assigned"] = parameters.size();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "The gradients of {} did not come from backward(): they were computed {} and {}. "
      "Nothing reduces them, and they differ across ranks in {} of {}.",
      all ? "every parameter" : list_of(finding.parameters),
      by_autograd ? "by torch.autograd.grad"
                  : "in another way, such as a functional API or a difference of weights,",
      by_hand ? "applied by hand" : "assigned", affected, count_of(steps.size(), "step"));
  finding.prescription = {
      fmt::format(
          "Compute them with loss.backward() on a forward through the wrapper, or all-reduce "
          "them by hand before {}.",
          by_hand ? "the update" : "optimizer.step()"),
      by_hand ? "" : "allreduce-flat"};
  return std::vector{finding};
}

}  // namespace

const Rule kAutogradGradBypass = {
    .code = "DDP110",
    .name = "autograd-grad-bypass",
    .severity = Severity::kError,
    .headline = "gradients were assigned without a backward",
    .check = check_autograd_grad_bypass,
    .needs = {.ranks = 2, .steps = 1},
    .lasting = true,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
