// SPDX-License-Identifier: BSD-3-Clause
// DDP104: some gradients were synchronized, others were not, although every rank has one for them.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// DDP105 and DDP106 report these more precisely: replaced after wrapping, or outside any wrapper.
bool is_special(const Timeline& timeline, const TimelineStep& step, int id) {
  const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
  const bool outside = timeline.has_wrapper() && !tensor.ddp_index;
  const auto usage = step.usage(step.first_rank(), id);
  return outside || (usage && usage->replaced);
}

bool everywhere(const Timeline& timeline, const TimelineStep& step, int id) {
  for (int rank : timeline.ranks()) {
    if (!step.find(rank, id, Stage::kGradient)) return false;
    const auto usage = step.usage(rank, id);
    if (usage && !usage->used) return false;
  }
  return true;
}

// The hand-written call; null if a wrapper synchronized and the calls are for something else, such
// as logging.
const Collective* synchronization(const Timeline& timeline, const TimelineStep& step) {
  for (const auto* call : synchronizing_calls(timeline, step)) {
    if (!timeline.has_wrapper() || call->target.starts_with("gradient")) return call;
  }
  return nullptr;
}

// Without a wrapper, a collective of its size ran during backward. A tensor's hook reduces a
// gradient before it is seen, so what is seen may never have differed.
bool reduced_on_arrival(const Timeline& timeline, const TimelineStep& step, int id) {
  if (timeline.has_wrapper()) return false;
  const auto numel = timeline.tensors[static_cast<std::size_t>(id)].numel;
  const auto& calls = step.first()->calls;
  return std::any_of(calls.begin(), calls.end(), [&](const Collective& call) {
    return call.moment == "backward" && call.numel == numel;
  });
}

std::set<int> synchronized_in(const Timeline& timeline, const TimelineStep& step) {
  std::set<int> together;
  for (int id : agreeing(timeline, step)) {
    if (local_gradients_differ(timeline, step, id) || reduced_on_arrival(timeline, step, id))
      together.insert(id);
  }
  return together;
}

// The step at `at`. If the loop synchronizes by hand, also the steps of other optimizers between
// this optimizer's previous step and its next one.
std::vector<const TimelineStep*> round_of(const Timeline& timeline,
                                          const std::vector<const TimelineStep*>& steps,
                                          std::size_t at) {
  std::vector<const TimelineStep*> round;
  round.push_back(steps[at]);
  if (timeline.has_wrapper()) return round;
  const auto own = steps[at]->first()->optimizer;
  for (std::size_t i = at; i-- > 0 && steps[i]->first()->optimizer != own;) {
    round.push_back(steps[i]);
  }
  for (std::size_t i = at + 1; i < steps.size() && steps[i]->first()->optimizer != own; ++i) {
    round.push_back(steps[i]);
  }
  return round;
}

// The program averages some weights every few steps (local SGD), and never others.
std::vector<Finding> left_out_of_the_average(const Timeline& timeline, const Averaging& averaging) {
  const auto& [averaged, left_out] = averaging;
  if (left_out.empty() || keeps_normalization_local(timeline, averaging)) return {};
  Finding finding = finding_of(kPartialSync);
  finding.certainty = Certainty::kLikely;  // each rank may keep a layer of its own on purpose
  finding.where = where_stepped(timeline);
  finding.ranks = timeline.ranks();
  finding.first_step = 1;
  finding.parameters = parameters_of(timeline, left_out);
  finding.evidence["kind"] = "averaging";
  finding.evidence["parameters_left_out"] = left_out.size();
  finding.evidence["parameters_synchronized"] = averaged.size();
  finding.message = fmt::format(
      "The program averages the weights of {} of {} every few steps (local SGD), and never those "
      "of {}: the ranks' copies of {} only move apart.",
      averaged.size(), count_of(averaged.size() + left_out.size(), "parameter"),
      list_of(finding.parameters), left_out.size() == 1 ? "it" : "these");
  finding.prescription = {"Average every parameter that the optimizers hold.", ""};
  return {finding};
}

// Of the elements of gradients that were seen after backward, and were not 0 there: all of them,
// and those that are 0 at optimizer.step, as where only the largest ones are exchanged.
struct Zeroed {
  std::size_t seen = 0;
  std::size_t now = 0;

  void count(const Timeline& timeline, const TimelineStep& step, const std::set<int>& ids) {
    for (const int id : ids) {
      for (const int rank : timeline.ranks()) {
        const auto local = step.sample(rank, id, Stage::kLocalGradient);
        const auto last = step.sample(rank, id, Stage::kGradient);
        if (!local || !last || local->values.size() != last->values.size()) continue;
        for (std::size_t i = 0; i < last->values.size(); ++i) {
          if (local->values[i] == 0.0) continue;
          ++seen;
          now += last->values[i] == 0.0 ? 1 : 0;
        }
      }
    }
  }
};

void blame_chosen_elements(Finding& finding) {
  finding.evidence["kind"] = "chosen-elements";
  finding.message = fmt::format(
      "At optimizer.step the gradients of {} differ across ranks in {} of {}, and most of their "
      "elements are 0 that were not after backward. Where only some elements are exchanged, such "
      "as "
      "the largest, every rank has to exchange the same.",
      list_of(finding.parameters), finding.evidence["steps_partial"].get<std::size_t>(),
      count_of(finding.evidence["steps_seen"].get<std::size_t>(), "step"));
  finding.prescription = {
      "Let one rank choose the elements and broadcast their indices, or gather every rank's "
      "indices "
      "with its values. If these gradients are not exchanged at all, synchronize them, too.",
      ""};
}

// Every gradient went through the reducer, which gave its buckets to the hook.
void blame_hook(const Timeline& timeline, const std::string& hook, Finding& finding) {
  if (auto registered = where(timeline, "comm-hook")) finding.where = std::move(registered);
  finding.evidence["kind"] = "comm-hook";
  finding.evidence["hook"] = hook;
  finding.message += fmt::format(" The communication hook {} got all of them.", hook);
  finding.prescription = {
      "Return the mean over all ranks from the hook, for every bucket: all-reduce bucket.buffer() "
      "divided by the world size.",
      "allreduce-flat"};
}

bool all_are_in_the_reducer(const Timeline& timeline, const std::set<int>& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](int id) {
    return timeline.tensors[static_cast<std::size_t>(id)].ddp_index.has_value();
  });
}

bool has_unsynchronized_backwards(const TimelineStep& step) {
  const auto records = step.records();
  return std::any_of(records.begin(), records.end(),
                     [](const StepRecord* record) { return record->unsynchronized_backwards > 0; });
}

Verdict check_partial_sync(const Timeline& timeline) {
  if (const auto averaging = averaging_of(timeline); !averaging.averaged.empty())
    return left_out_of_the_average(timeline, averaging);
  const auto steps = complete_steps(timeline);

  Finding finding = finding_of(kPartialSync);
  std::set<int> left_out;
  std::set<int> synchronized;
  std::size_t partial = 0;
  Zeroed zeroed;
  bool no_sync = false;
  const Collective* call = nullptr;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const TimelineStep& step = *steps[at];
    std::set<int> apart;
    for (int id : differing(timeline, step, Stage::kGradient)) {
      if (!is_special(timeline, step, id) && everywhere(timeline, step, id)) apart.insert(id);
    }
    if (apart.empty()) continue;
    std::set<int> together;
    for (const auto* other : round_of(timeline, steps, at)) {
      together.merge(synchronized_in(timeline, *other));
      if (partial == 0 && call == nullptr) call = synchronization(timeline, *other);
    }
    if (together.empty()) continue;
    ++partial;
    no_sync = no_sync || has_unsynchronized_backwards(step);
    zeroed.count(timeline, step, apart);
    left_out.insert(apart.begin(), apart.end());
    synchronized.insert(together.begin(), together.end());
    if (!finding.first_step) finding.first_step = step.number;
  }
  if (partial == 0) return std::vector<Finding>{};
  const bool by_hand = call != nullptr;
  finding.where =
      by_hand ? Where{call->file, call->line} : where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  finding.parameters = parameters_of(timeline, left_out);
  finding.evidence["parameters_left_out"] = left_out.size();
  finding.evidence["parameters_synchronized"] = synchronized.size();
  finding.evidence["steps_partial"] = partial;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["hand_written"] = by_hand;
  finding.message = fmt::format(
      "Only {} of {} were synchronized: {} {} not, although every rank had a gradient, in {} of "
      "{}.",
      synchronized.size(), count_of(synchronized.size() + left_out.size(), "parameter"),
      list_of(finding.parameters), left_out.size() == 1 ? "was" : "were", partial,
      count_of(steps.size(), "step"));
  finding.prescription =
      by_hand ? Prescription{"Synchronize all parameters that the optimizer holds: every group in optimizer.param_groups, every module.",
                             "allreduce-flat"}
              : Prescription{"Use every parameter in the micro-batch outside no_sync: gradients that come only from micro-batches under no_sync are not averaged.",
                             "allreduce-flat"};
  if (by_hand && 2 * zeroed.now > zeroed.seen) blame_chosen_elements(finding);
  const auto hook = comm_hook_of(timeline);
  if (hook && !by_hand && !no_sync && all_are_in_the_reducer(timeline, left_out))
    blame_hook(timeline, *hook, finding);
  return std::vector{finding};
}

}  // namespace

const Rule kPartialSync = {.code = "DDP104",
                           .name = "partial-sync",
                           .severity = Severity::kError,
                           .headline = "some gradients were synchronized, others were not",
                           .check = check_partial_sync,
                           .needs = {.ranks = 2, .steps = 1},
                           .on_mesh = OnMesh::kNotChecked,
                           .explains = {{&kGradientsOutOfSync}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
