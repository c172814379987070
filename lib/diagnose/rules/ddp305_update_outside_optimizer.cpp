// SPDX-License-Identifier: BSD-3-Clause
// DDP305: weights that were equal after one optimizer step differ before the next: something
// rank-local changed them in between. No optimizer changes frozen weights at all.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

bool equal_after(const TimelineStep& step, int id) {
  const auto groups = step.groups(id, Stage::kWeight);
  return groups.size() == 1 && groups.front().size() == step.expected();
}

// NaN is equal to NaN.
bool equal(const Sample& a, const Sample& b) {
  return std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// A rank's weights before the update: recorded again if something wrote to them since the last
// step, otherwise the same as after that step. Nothing if that something was not noticed, as a
// broadcast into them or a write to `p.data` is not.
std::optional<TensorDigest> before(const TimelineStep& last, const TimelineStep& step, int rank,
                                   int id) {
  if (const auto seen = step.find(rank, id, Stage::kWeightBefore)) return seen;
  const auto is = step.sample(rank, id, Stage::kWeightBefore);
  const auto was = last.sample(rank, id, Stage::kWeight);
  if (is && was && !equal(*is, *was)) return {};
  return last.find(rank, id, Stage::kWeight);
}

bool different_before(const Ranks& replicas, const TimelineStep& last, const TimelineStep& step,
                      int id) {
  std::set<std::array<std::uint8_t, 16>> bits;
  for (int rank : replicas) {
    if (const auto seen = before(last, step, rank, id)) bits.insert(seen->bits);
  }
  if (bits.size() > 1) return true;
  // What was not noticed shows in the values at a few positions.
  std::optional<Sample> first;
  for (int rank : replicas) {
    const auto seen = step.sample(rank, id, Stage::kWeightBefore);
    if (!seen) return false;
    if (first && !equal(*first, *seen)) return true;
    first = seen;
  }
  return false;
}

// Ranks whose own weights are no longer those of the last step; of steps that follow each other.
std::vector<int> writers(const Timeline& timeline, const TimelineStep& last,
                         const TimelineStep& step, const std::set<int>& ids) {
  std::vector<int> ranks;
  for (const int rank : timeline.ranks()) {
    const bool wrote = std::any_of(ids.begin(), ids.end(), [&](int id) {
      const auto now = step.find(rank, id, Stage::kWeightBefore);
      const auto then = last.find(rank, id, Stage::kWeight);
      if (now && then) return now->bits != then->bits;
      // Writes to p.data are not noticed: compare the values at a few positions.
      const auto is = step.sample(rank, id, Stage::kWeightBefore);
      const auto was = last.sample(rank, id, Stage::kWeight);
      return is && was && !(is->values == was->values);
    });
    if (wrote) ranks.push_back(rank);
  }
  return ranks;
}

// Equal by their roots: then no tensor needs to be compared.
bool all_equal_before(const TimelineStep& last, const TimelineStep& step) {
  if (!last.same_everywhere(Stage::kWeight) || !step.details) return false;
  const auto same = [&](Slot slot) {
    return !step.details->any(slot) || step.details->same_everywhere(slot, *step.here);
  };
  return same({Seen::kDigests, Stage::kWeightBefore}) &&
         same({Seen::kSamples, Stage::kWeightBefore});
}

// Frozen parameters of wrapped modules. A frozen copy outside them (an average, a teacher) may
// differ by rank on purpose.
std::vector<int> frozen(const Timeline& timeline) {
  std::vector<int> ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter" && !tensor.trainable && tensor.wrapper &&
        !timeline.rank_local.contains(tensor.id))
      ids.push_back(tensor.id);
  }
  return ids;
}

// load_state_dict of a wrapped module or of a part of it.
struct Loads {
  std::vector<int> ranks;
  std::optional<Where> where;
};

// Those after step `last`, up to the update of step `step`.
Loads loads_between(const Timeline& timeline, std::int64_t last, std::int64_t step) {
  Loads loads;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    const auto found = std::find_if(record->facts.begin(), record->facts.end(), [&](const Fact& f) {
      return f.is("wrapper", "loaded") && f.step > last && f.step <= step;
    });
    if (found == record->facts.end()) continue;
    loads.ranks.push_back(rank);
    if (!loads.where)
      loads.where = where(timeline, fmt::format("load_state_dict {}", found->value));
  }
  return loads;
}

// What writes to them in later steps wrote before the first one, too: the wrapper had just made
// them equal, and nothing was loaded.
bool began_before_the_first_step(const Timeline& timeline, const Loads& loads) {
  const auto* start = timeline.step(0);
  return start != nullptr && start->complete() && timeline.has_wrapper() && loads.ranks.empty() &&
         loads_between(timeline, -1, 1).ranks.empty() &&
         !differing(timeline, *start, Stage::kWeight).empty();
}

// Copies of weights that an optimizer holds, and that differed after step `last`: such as those of
// a model in bfloat16, whose optimizer has them in float32.
bool are_copies(const Timeline& timeline, const TimelineStep& last, const TimelineStep& step,
                const std::set<int>& changed) {
  const auto is_held = [&](int id) {
    const auto ranks = timeline.ranks();
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
      const auto usage = step.usage(rank, id);
      return usage && usage->in_optimizer;
    });
  };
  if (std::any_of(changed.begin(), changed.end(), [&](int id) {
        return is_held(id) || !timeline.tensors[static_cast<std::size_t>(id)].trainable;
      }))
    return false;
  const auto apart = differing(timeline, last, Stage::kWeight);
  return std::any_of(apart.begin(), apart.end(), is_held);
}

// The reducer no longer has what it hooked: new parameters are in their places.
bool were_replaced(const Timeline& timeline, std::int64_t number, const std::set<int>& changed) {
  const auto* step = timeline.step(number);
  return step != nullptr && std::all_of(changed.begin(), changed.end(), [&](int id) {
           const auto ranks = timeline.ranks();
           return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
             const auto usage = step->usage(rank, id);
             return usage && usage->replaced;
           });
         });
}

Verdict check_update_outside_optimizer(const Timeline& timeline) {
  std::vector<const TimelineStep*> steps;  // with the state before the first one
  for (const auto& step : timeline.steps) {
    if (step.examined()) steps.push_back(&step);
  }
  if (steps.size() < 2) return Undecidable{kNoCompleteStep};
  Finding finding = finding_of(kUpdateOutsideOptimizer);
  std::set<int> changed;
  Loads loads;
  std::vector<int> wrote;
  const auto frozen_ids = frozen(timeline);
  for (std::size_t i = 1; i < steps.size() && !finding.first_step; ++i) {
    const TimelineStep &last = *steps[i - 1], &step = *steps[i];
    for (int id : step.same_everywhere(Stage::kWeight) ? std::vector<int>{} : frozen_ids) {
      if (equal_after(last, id) && step.groups(id, Stage::kWeight).size() > 1) changed.insert(id);
    }
    if (step.number == last.number + 1 && !all_equal_before(last, step)) {
      for (int id : timeline.trainable()) {
        const auto& groups = timeline.replicas_of(id, Stage::kWeight);
        const bool apart = std::any_of(groups.begin(), groups.end(), [&](const Ranks& replicas) {
          return different_before(replicas, last, step, id);
        });
        if (apart && equal_after(last, id)) changed.insert(id);
      }
    }
    // Between steps that are not consecutive, the optimizer stepped without being examined, with
    // gradients that are still the same everywhere.
    if (step.number > last.number + 1 && !step.same_everywhere(Stage::kWeight) &&
        differing(timeline, step, Stage::kGradient).empty()) {
      std::set<int> apart;
      for (int id : timeline.trainable()) {
        if (equal_after(last, id) && step.groups(id, Stage::kWeight).size() > 1) apart.insert(id);
      }
      if (!apart.empty() && !loads_between(timeline, last.number, step.number).ranks.empty()) {
        if (changed.empty()) finding.certainty = Certainty::kLikely;
        changed.merge(apart);
      }
    }
    if (are_copies(timeline, last, step, changed)) changed.clear();
    if (changed.empty()) continue;
    finding.first_step = step.number;
    loads = loads_between(timeline, last.number, step.number);
    if (step.number == last.number + 1) wrote = writers(timeline, last, step, changed);
  }
  if (changed.empty()) return std::vector<Finding>{};
  finding.where = loads.where ? loads.where : where_stepped(timeline, finding.first_step);
  finding.ranks = !loads.ranks.empty() ? loads.ranks : wrote.empty() ? timeline.ranks() : wrote;
  finding.parameters = parameters_of(timeline, changed);
  finding.evidence["parameters_changed"] = changed.size();
  const bool all_frozen = std::all_of(changed.begin(), changed.end(), [&](int id) {
    return !timeline.tensors[static_cast<std::size_t>(id)].trainable;
  });
  finding.evidence["frozen"] = all_frozen;
  if (were_replaced(timeline, *finding.first_step, changed)) finding.evidence["kind"] = "replaced";
  std::string changed_by = fmt::format("something other than the optimizer changed them on {}",
                                       wrote.empty()               ? "some ranks"
                                       : wrote == timeline.ranks() ? "every rank"
                                                                   : ranks_of(wrote));
  if (!loads.ranks.empty()) {
    finding.evidence["loaded_on"] = loads.ranks;
    changed_by = fmt::format(
        "in between, {} called load_state_dict",
        loads.ranks == timeline.ranks() ? "every rank" : "only " + ranks_of(loads.ranks));
  }
  const bool certain = finding.certainty == Certainty::kCertain;
  finding.message = fmt::format(
      "The {}weights of {} were equal on every rank {} and differ {} step {}: {}.",
      all_frozen ? "frozen " : "", list_of(finding.parameters),
      all_frozen || !certain ? "when last examined" : "after the previous step",
      all_frozen || !certain ? "in" : "before the update of", *finding.first_step, changed_by);
  if (!all_frozen && began_before_the_first_step(timeline, loads)) {
    finding.first_step = 1;
    finding.message +=
        " Weights differed before step 1, too, although the wrapper had just made them equal.";
  }
  finding.prescription = {
      "Find what writes to the weights between optimizer steps (loading a checkpoint, an EMA swap, "
      "clamping, noise, re-initialization). Do it identically on every rank, or broadcast the "
      "weights afterwards.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kUpdateOutsideOptimizer = {
    .code = "DDP305",
    .name = "update-outside-optimizer",
    .severity = Severity::kError,
    .headline = "weights changed between two optimizer steps",
    .check = check_update_outside_optimizer,
    .needs = {.ranks = 2},
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kInitialWeightsDiffer, "after-wrapping"}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
