// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

template <class T>
std::optional<T> value_of(const Timeline& timeline, const std::string& subject,
                          const std::string& key) {
  const auto* fact = timeline.fact(timeline.first_rank(), subject, key);
  if (fact == nullptr) return {};
  const auto value = nlohmann::json::parse(fact->value, nullptr, false);
  return value.is_discarded() ? std::nullopt : std::optional(value.get<T>());
}

// What the record shows of a parameter's training on one rank.
struct Training {
  bool gradient = false;  // the optimizer's step found one
  bool arrives = false;   // there was one; DeepSpeed takes it away before the step
  bool moves = false;     // the weight's bits change

  bool happens() const { return (gradient || arrives) && moves; }
};

Training training_of(const std::vector<const TimelineStep*>& steps, int rank, int id) {
  Training training;
  std::optional<TensorDigest> before;
  for (const auto* step : steps) {
    const auto usage = step->usage(rank, id);
    const auto now = step->find(rank, id, Stage::kWeight);
    training.gradient = training.gradient || step->find(rank, id, Stage::kGradient);
    training.arrives = training.arrives || (usage && (usage->used || usage->assigned));
    training.moves = training.moves || (before && now && now->bits != before->bits);
    if (training.gradient && training.moves) break;
    if (now) before = now;
  }
  return training;
}

// An optimizer of known parameters, none of which had a gradient in any of its steps.
std::string idle_optimizer(const Timeline& timeline,
                           const std::vector<const TimelineStep*>& steps) {
  std::set<int> seen;
  for (const auto* step : steps) {
    const int number = step->first()->optimizer;
    if (!seen.insert(number).second) continue;
    const auto subject = fmt::format("optimizer {}", number);
    const auto held = value_of<std::vector<int>>(timeline, subject, "tensors");
    if (!held || held->empty() || value_of<int>(timeline, subject, "unknown").value_or(0) > 0)
      continue;
    const bool trains = std::any_of(held->begin(), held->end(), [&](int id) {
      const auto training = training_of(steps, timeline.first_rank(), id);
      return training.gradient || training.happens();
    });
    if (trains) continue;
    return fmt::format(
        "no parameter of optimizer {} ({}) had a gradient in any step", number,
        value_of<std::string>(timeline, subject, "type").value_or("of unknown type"));
  }
  return {};
}

bool all_gradients_are_zero(const Timeline& timeline,
                            const std::vector<const TimelineStep*>& steps) {
  bool any = false;
  for (const auto* step : steps) {
    for (const int rank : timeline.ranks()) {
      if (step->like(rank, {Seen::kDigests, Stage::kGradient}) != rank) continue;
      for (const int id : timeline.trainable()) {
        const auto seen = step->find(rank, id, Stage::kGradient);
        if (!seen) continue;
        if (seen->max_abs > 0.0 || seen->nonfinite > 0) return false;
        any = any || seen->numel > 0;
      }
    }
  }
  return any;
}

// There are gradients, and no weight ever changes: nothing is trained, whatever else is right.
bool nothing_moves(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  bool gradient = false;
  for (const int rank : timeline.ranks()) {
    if (steps.back()->like(rank, {Seen::kDigests, Stage::kWeight}) != rank) continue;
    for (const int id : timeline.trainable()) {
      const auto first = steps.front()->find(rank, id, Stage::kWeight);
      const auto last = steps.back()->find(rank, id, Stage::kWeight);
      if (first && last && first->bits != last->bits) return false;
      const auto usage = steps.back()->usage(rank, id);
      gradient = gradient || (first && last && usage && usage->used);
    }
  }
  return gradient && steps.size() > 2;
}

bool is_shard(const Timeline& timeline, int id) {
  return timeline.rank_local.contains(id) && timeline.placed().of.contains(id);
}

// The shards of a parameter have no replicas to compare with. What the record shows is whether they
// train on some rank.
bool shards_train(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  const auto ids = timeline.trainable();
  const auto ranks = timeline.ranks();
  return steps.size() > 1 && std::any_of(ids.begin(), ids.end(), [&](int id) {
           return is_shard(timeline, id) && std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
                    return training_of(steps, rank, id).happens();
                  });
         });
}

std::string nothing_proved(const Timeline& timeline, const Diagnosis& diagnosis,
                           const Coverage& coverage) {
  if (!diagnosis.undecided.empty())
    return fmt::format("the differences that {} saw may be intended: {}",
                       fmt::join(diagnosis.undecided, ", "), timeline.layout.model_parallel);
  if (timeline.layout.own_models)
    return "what differs between the ranks may be intended: " + timeline.layout.model_parallel;
  const auto steps = complete_steps(timeline);
  if (steps.empty()) return {};
  if (coverage.compared == 0 && coverage.shards == 0)
    return "no parameter is replicated on several ranks";
  if (coverage.compared == 0 && !shards_train(timeline, steps))
    return "every parameter is sharded, and none was seen to train";
  if (auto idle = idle_optimizer(timeline, steps); !idle.empty()) return idle;
  if (all_gradients_are_zero(timeline, steps)) return "every gradient was zero in every step";
  if (nothing_moves(timeline, steps))
    return "no weight changed in any step, although there are gradients";
  return {};
}

}  // namespace

Coverage coverage_of(const Timeline& timeline, const Diagnosis& diagnosis) {
  Coverage coverage;
  std::set<std::string> known;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter") continue;
    known.insert(tensor.name);
    ++(is_shard(timeline, tensor.id)             ? coverage.shards
       : timeline.rank_local.contains(tensor.id) ? coverage.left_out
                                                 : coverage.compared);
  }
  for (const auto& [name, placement] : timeline.layout.placements)
    coverage.left_out += known.contains(name) ? 0 : 1;
  for (const auto& [model, count] : timeline.layout.unexamined) coverage.left_out += count;
  coverage.nothing = nothing_proved(timeline, diagnosis, coverage);
  return coverage;
}

}  // namespace ddp_doctor
