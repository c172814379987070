// SPDX-License-Identifier: BSD-3-Clause
// DDP102: the optimizer's gradients are not bit-identical on every rank.
//
// These causes are named: nothing in the program could have synchronized them, a communication hook
// that returned what it was given, ranks that changed them after they were equal, and collectives
// of the program that give the result to one rank, run in other steps only, or have no effect.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// Who else places the parameters, such as FullyShardedDataParallel; null: nobody.
const std::string* sharding_of(const Timeline& timeline) {
  for (const auto& [name, all] : timeline.layout.placements) {
    const auto& source = all.front().placement.source;
    if (source == "FullyShardedDataParallel" || source == "fully_shard") return &source;
  }
  return nullptr;
}

// There is no wrapper, and no step has collectives that could have carried the gradients: a loss or
// a metric is smaller than they are, even if they were compressed to a byte each. Nor did anything
// else, unseen, make a gradient equal.
bool nothing_synchronizes(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  if (timeline.has_wrapper() || sharding_of(timeline) != nullptr) return false;
  for (const auto* step : steps) {
    const auto ids = agreeing(timeline, *step);
    if (std::any_of(ids.begin(), ids.end(),
                    [&](int id) { return local_gradients_differ(timeline, *step, id); }))
      return false;
  }
  std::int64_t elements = 0;
  for (int id : timeline.trainable())
    elements += timeline.tensors[static_cast<std::size_t>(id)].numel;
  return std::all_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& step) {
    // Before the first one the program may have broadcast its weights.
    if (steps.size() > 1 && step.number <= steps.front()->number) return true;
    const auto records = step.records();
    return std::all_of(records.begin(), records.end(), [&](const StepRecord* record) {
      return record->collectives == 0 || record->collective_bytes < elements;
    });
  });
}

// The reducer ran, and each rank got its own gradients back.
bool reduced_to_itself(const TimelineStep& step, const std::vector<int>& differing) {
  return std::all_of(differing.begin(), differing.end(), [&](int id) {
    return std::all_of(step.here->begin(), step.here->end(), [&](int rank) {
      const auto local = step.find(rank, id, Stage::kLocalGradient);
      const auto reduced = step.find(rank, id, Stage::kReducedGradient);
      return local && reduced && local->bits == reduced->bits;
    });
  });
}

// Ranks whose gradients the reducer had made equal, and that changed them since; empty if it had
// not.
std::set<int> changed_since(const TimelineStep& step, const std::vector<int>& differing) {
  std::set<int> ranks;
  for (int id : differing) {
    const auto reduced = step.groups(id, Stage::kReducedGradient);
    if (reduced.size() != 1 || reduced.front().size() != step.expected()) return {};
    for (int rank : reduced.front()) {
      const auto before = step.find(rank, id, Stage::kReducedGradient);
      const auto now = step.find(rank, id, Stage::kGradient);
      if (!now || now->bits != before->bits) ranks.insert(rank);
    }
  }
  return ranks;
}

// What the program did to synchronize the gradients of a step, alike on every rank: its collectives
// that are large enough to carry all of them. Empty if it did nothing, or ranks did not do the
// same.
std::vector<const Collective*> reductions(const Timeline& timeline, const TimelineStep& step) {
  std::int64_t needed = 0;
  for (const int id : timeline.trainable())
    needed += timeline.tensors[static_cast<std::size_t>(id)].numel;
  const auto signature = [](const Collective& call) {
    return std::tuple(call.op, call.numel, call.count, call.file, call.line);
  };
  std::vector<const Collective*> first;
  for (const auto* record : step.records()) {
    std::vector<const Collective*> calls;
    std::int64_t sent = 0;
    for (const auto& call : record->calls) {
      // A functional API has no backward that they could be after.
      const bool functional = record->backwards == 0 && call.moment == "outside";
      if ((call.moment != "before-step" && !functional) || !call.group.empty()) continue;
      sent += call.numel * call.count;
      if (call.numel > 1) calls.push_back(&call);
    }
    if (sent < needed) return {};
    if (first.empty()) first = calls;
    if (!std::equal(calls.begin(), calls.end(), first.begin(), first.end(),
                    [&](const auto* a, const auto* b) { return signature(*a) == signature(*b); }))
      return {};
  }
  return first;
}

// What the program's own collectives did where gradients differ.
struct ByHand {
  const Collective* call = nullptr;  // where it reduces them
  std::size_t reduced = 0;           // steps in which they were reduced, and differ
  std::size_t to_one_rank = 0;       // of these: by a reduce()
  std::size_t agreeing = 0;          // steps in which they were reduced, and agree
};

ByHand by_hand(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  ByHand seen;
  if (timeline.has_wrapper()) return seen;
  for (const auto* step : steps) {
    const auto calls = reductions(timeline, *step);
    if (calls.empty()) continue;
    if (seen.call == nullptr) seen.call = calls.front();
    if (differing(timeline, *step, Stage::kGradient).empty()) {
      ++seen.agreeing;
      continue;
    }
    ++seen.reduced;
    const bool to_one = std::all_of(calls.begin(), calls.end(),
                                    [](const auto* call) { return call->op == "reduce"; });
    seen.to_one_rank += to_one ? 1 : 0;
  }
  return seen;
}

void blame_collectives(Finding& finding, const ByHand& seen, std::size_t apart) {
  if (seen.call == nullptr) return;
  const auto place = Where{seen.call->file, seen.call->line};
  if (seen.to_one_rank == apart) {
    finding.evidence["kind"] = "reduced-to-one-rank";
    finding.message +=
        " The program reduces them with reduce(), which gives the result to one rank only.";
    finding.prescription = {"Use all_reduce instead of reduce: every rank needs the result.", ""};
  } else if (seen.reduced == apart) {
    finding.evidence["kind"] = "reduced-without-effect";
    finding.message += fmt::format(
        " The program reduces them over all ranks ({}), but they are not equal afterwards.",
        seen.call->op);
    // Averaging them again would only hide it.
    finding.prescription = {
        "Check what happens after the reduction: wait for it if it is asynchronous, copy its "
        "result "
        "back into .grad, and change gradients (noise, clipping) in the same way on every rank.",
        ""};
  } else if (seen.reduced == 0 && seen.agreeing > 0) {
    finding.evidence["kind"] = "reduced-in-some-steps";
    finding.evidence["steps_reduced"] = seen.agreeing;
    finding.message += fmt::format(" The program reduces them only in the other {}.",
                                   count_of(seen.agreeing, "step"));
    finding.prescription.text =
        "Reduce the gradients before every optimizer.step(), or call optimizer.step() only in the "
        "steps in which they are reduced.";
  } else {
    return;
  }
  finding.where = place;
}

void blame_change(Finding& finding, const std::set<int>& ranks, std::size_t seen) {
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["kind"] = "changed-after-reduction";
  finding.message = fmt::format(
      "The gradients were equal on every rank after the reduction, and {} changed them afterwards: "
      "at optimizer.step they differ across ranks in {} of {}.",
      ranks_of(finding.ranks), finding.evidence["steps_apart"].get<std::size_t>(),
      count_of(seen, "step"));
  // Averaging them again would only hide it.
  finding.prescription = {
      "Do what happens to the gradients between backward and optimizer.step, such as clipping, in "
      "the same way on every rank.",
      ""};
}

void blame_missing_wrapper(const Timeline& timeline, Finding& finding, std::size_t seen) {
  if (auto made = where(timeline, "optimizer")) finding.where = std::move(made);
  finding.evidence["kind"] = "never-synchronized";
  finding.message = fmt::format(
      "Nothing synchronizes the gradients: the model is not wrapped in DistributedDataParallel, "
      "and no collective of the program carries gradients. Each of the {} ranks trains its own "
      "model; gradients differ in {} of {}.",
      timeline.ranks().size(), finding.evidence["steps_apart"].get<std::size_t>(),
      count_of(seen, "step"));
  const auto* start = timeline.step(0);
  const bool apart = start != nullptr && !differing(timeline, *start, Stage::kWeight).empty();
  finding.prescription = {
      "Wrap the model before the optimizer is constructed: model = DistributedDataParallel(model). "
      "Its constructor also copies rank 0's weights to every rank.",
      "ddp",
      {},
      {apart ? "allreduce-flat+broadcast-init" : "allreduce-flat"}};
}

void blame_hook(const Timeline& timeline, Finding& finding, const std::string& hook,
                std::size_t seen) {
  if (auto registered = where(timeline, "comm-hook")) finding.where = std::move(registered);
  finding.evidence["kind"] = "comm-hook";
  finding.evidence["hook"] = hook;
  finding.message = fmt::format(
      "The communication hook {} returned each rank's own gradients to the reducer: it does not "
      "average them. At optimizer.step gradients differ across ranks in {} of {}.",
      hook, finding.evidence["steps_apart"].get<std::size_t>(), count_of(seen, "step"));
  finding.prescription = {
      "Return the mean over all ranks from the hook: all-reduce bucket.buffer() divided by the "
      "world size. Without a hook DistributedDataParallel does this itself.",
      "allreduce-flat"};
}

bool reduces_anything(const TimelineStep& step) {
  const auto records = step.records();
  return std::any_of(records.begin(), records.end(), [](const StepRecord* record) {
    return std::any_of(record->calls.begin(), record->calls.end(), [](const Collective& call) {
      return call.op.find("reduce") != std::string::npos && call.numel * call.count > 1;
    });
  });
}

// Of a sharded optimizer that the program wrote itself: the steps in which every parameter was
// updated with the gradient that its owner computed alone, although others computed other ones.
std::size_t steps_with_own_gradients(const Timeline& timeline,
                                     const std::vector<const TimelineStep*>& steps) {
  std::size_t count = 0;
  for (const auto* step : steps) {
    if (reduces_anything(*step)) return 0;
    bool differ = false;
    for (const int id : timeline.updated_by_some) {
      std::optional<SampledValues> first;
      for (const int rank : timeline.ranks()) {
        const auto local = step->sample(rank, id, Stage::kLocalGradient);
        if (!local) return 0;
        if (!first) first = local->values;
        differ = differ || !(*first == local->values);
        const auto usage = step->usage(rank, id);
        const auto got = step->sample(rank, id, Stage::kGradient);
        if (usage && usage->in_optimizer && got && !(got->values == local->values)) return 0;
      }
    }
    count += differ ? 1 : 0;
  }
  return count;
}

Finding owners_alone(const Timeline& timeline, std::size_t affected, std::size_t seen) {
  Finding finding = finding_of(kGradientsOutOfSync);
  finding.where = where_stepped(timeline);
  finding.ranks = timeline.ranks();
  finding.first_step = 1;
  finding.evidence["kind"] = "owners-alone";
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = seen;
  finding.message = fmt::format(
      "Each parameter is updated by one rank, with that rank's own gradient, and then sent to the "
      "others: in {} of {} nothing reduced the gradients. The weights agree, but what the other "
      "ranks computed from their data is lost.",
      affected, count_of(seen, "step"));
  finding.prescription = {
      "Reduce every gradient over all ranks, or to the rank that updates its parameter, after the "
      "last backward and before the optimizer steps, and divide by the number of ranks.",
      ""};
  return finding;
}

Verdict check_gradients_out_of_sync(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (const char* reason = why_apart(timeline)) return Undecidable{reason};
  if (!timeline.updated_by_some.empty()) {
    const auto alone = steps_with_own_gradients(timeline, steps);
    if (2 * alone > steps.size()) return std::vector{owners_alone(timeline, alone, steps.size())};
  }

  Finding finding = finding_of(kGradientsOutOfSync);
  std::set<int> parameters;
  std::size_t apart = 0;
  bool collectives = false;
  bool to_itself = true;
  bool was_equal = true;
  std::set<int> changed;  // which ranks changed what was equal
  for (const auto* step : steps) {
    for (const auto* record : step->records()) collectives = collectives || record->collectives > 0;
    const auto ids = differing(timeline, *step, Stage::kGradient);
    if (ids.empty()) continue;
    ++apart;
    parameters.insert(ids.begin(), ids.end());
    to_itself = to_itself && reduced_to_itself(*step, ids);
    const auto since = changed_since(*step, ids);
    was_equal = was_equal && !since.empty();
    changed.insert(since.begin(), since.end());
    if (!finding.first_step) finding.first_step = step->number;
  }
  if (apart == 0) return std::vector<Finding>{};
  const bool all = parameters.size() == timeline.trainable().size();
  finding.where = where_stepped(timeline, finding.first_step);
  finding.ranks = timeline.ranks();
  if (!all) finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["steps_apart"] = apart;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["parameters_apart"] = parameters.size();
  finding.evidence["parameters"] = timeline.trainable().size();
  finding.message = fmt::format(
      "At optimizer.step the gradient of {} differs across ranks, in {} of {}.",
      all ? "every parameter" : list_of(finding.parameters), apart, count_of(steps.size(), "step"));
  finding.prescription = {
      "Average the gradients over all ranks after the last backward of each step: let "
      "DistributedDataParallel do it, or all-reduce every parameter's gradient, with zeros on "
      "ranks that have none.",
      collectives ? "allreduce-flat" : "ddp",
      {},
      {"allreduce-flat"}};
  if (const auto* source = sharding_of(timeline); source != nullptr && !timeline.has_wrapper()) {
    finding.evidence["kind"] = "sharding-module";
    finding.message += fmt::format(" {} did not reduce them.", *source);
    finding.prescription = {
        fmt::format("Let the last backward of each step reduce: end no_sync() before it, and set "
                    "set_requires_gradient_sync(True) and set_requires_all_reduce(True) where "
                    "these were switched off. {} reduces over the ranks of its own mesh or process "
                    "group only.",
                    *source),
        ""};
  } else if (nothing_synchronizes(timeline, steps)) {
    blame_missing_wrapper(timeline, finding, steps.size());
  } else if (const auto hook = comm_hook_of(timeline); hook && to_itself) {
    blame_hook(timeline, finding, *hook, steps.size());
  } else if (was_equal) {
    blame_change(finding, changed, steps.size());
  } else {
    blame_collectives(finding, by_hand(timeline, steps), apart);
  }
  return std::vector{finding};
}

}  // namespace

const Rule kGradientsOutOfSync = {
    .code = "DDP102",
    .name = "gradients-out-of-sync",
    .severity = Severity::kError,
    .headline = "gradients differ across ranks at optimizer.step",
    .check = check_gradients_out_of_sync,
    .needs = {.ranks = 2, .steps = 1},
    .on_mesh = OnMesh::kNotChecked,
    .only_a_difference = true,
    // A wrapper would also have broadcast rank 0's weights and buffers.
    .explains = {{&kInitialWeightsDiffer, "", "never-synchronized"},
                 {&kBuffersDrift, "", "never-synchronized"},
                 {&kWeightsDrift},
                 {&kStalledRank}}};

}  // namespace ddp_doctor
