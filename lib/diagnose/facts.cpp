// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/diagnose/rank_set.h"
#include "lib/timeline/trace.h"

namespace ddp_doctor {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace

bool gradients_examined(const Timeline& timeline, const TimelineStep& step, int rank) {
  return std::any_of(
      timeline.tensors.begin(), timeline.tensors.end(), [&](const TensorInfo& tensor) {
        return tensor.kind == "parameter" && tensor.trainable &&
               (step.usage(rank, tensor.id) || step.find(rank, tensor.id, Stage::kGradient));
      });
}

bool gradients_comparable(const Timeline& timeline, const TimelineStep& step) {
  const auto ranks = timeline.ranks();
  const auto examined = std::count_if(ranks.begin(), ranks.end(), [&](int rank) {
    return gradients_examined(timeline, step, rank);
  });
  return examined == 0 || examined == static_cast<std::ptrdiff_t>(ranks.size());
}

std::vector<const TimelineStep*> complete_steps(const Timeline& timeline) {
  std::vector<const TimelineStep*> steps;
  for (const auto& step : timeline.steps) {
    if (step.number > 0 && step.examined() && gradients_comparable(timeline, step))
      steps.push_back(&step);
  }
  return steps;
}

namespace {

// No optimizer holds it, so its gradient does not matter.
bool is_in_no_optimizer(const TimelineStep& step, int id) {
  bool seen = false;
  for (int rank : step.distinct_users()) {
    const auto usage = step.usage(rank, id);
    if (!usage) continue;
    if (usage->in_optimizer) return false;
    seen = true;
  }
  return seen;
}

}  // namespace

std::vector<int> compared(const Timeline& timeline, const TimelineStep& step, Stage stage) {
  std::vector<int> ids;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || (step.number > 0 && !tensor.trainable)) continue;
    if (timeline.rank_local.contains(tensor.id)) continue;
    if (stage == Stage::kWeight && timeline.updated_by_some.contains(tensor.id)) continue;
    if (stage == Stage::kWeight || !is_in_no_optimizer(step, tensor.id)) ids.push_back(tensor.id);
  }
  return ids;
}

namespace {

enum class Moved { kApart, kNot, kTogether };

// What a step did to a weight that was equal on all of `replicas`, where its optimizer issued
// collectives itself.
Moved moved_by(const Timeline& timeline, const TimelineStep& step, int id,
               const std::vector<int>& replicas) {
  const auto weight = [&](const TimelineStep& at) {
    return at.find(replicas.front(), id, Stage::kWeight);
  };
  const auto equal = [&](const TimelineStep& at) {
    const auto groups = at.groups(id, Stage::kWeight, replicas);
    return groups.size() == 1 && groups.front().size() == replicas.size();
  };
  const auto together = [](bool moved) { return moved ? Moved::kTogether : Moved::kNot; };
  const auto& calls = step.first()->calls;
  const bool in_step = std::any_of(calls.begin(), calls.end(), [](const Collective& call) {
    return call.moment == "optimizer";
  });
  if (!in_step || !equal(step)) return Moved::kApart;
  // When they were last seen: the steps of other optimizers do not show them.
  for (auto before = timeline.steps.rbegin(); before != timeline.steps.rend(); ++before) {
    if (before->number >= step.number || !before->examined() || !weight(*before)) continue;
    if (!equal(*before)) return Moved::kApart;
    return together(weight(*before)->bits != weight(step)->bits);
  }
  const auto was = step.sample(replicas.front(), id, Stage::kWeightBefore);
  const auto is = step.sample(replicas.front(), id, Stage::kWeight);
  return together(was && is && was->values != is->values);
}

// The step left weights equal on all of `replicas`: an optimizer that reduces gradients in its own
// step(). It may not move them in some steps, as where the learning rate begins at 0.
bool reduced_in_step(const Timeline& timeline, const TimelineStep& step, int id,
                     const std::vector<int>& replicas) {
  const auto here = moved_by(timeline, step, id, replicas);
  if (here != Moved::kNot) return here == Moved::kTogether;
  return std::any_of(timeline.steps.begin(), timeline.steps.end(), [&](const TimelineStep& other) {
    return other.number > 0 && other.complete() && other.examined() &&
           moved_by(timeline, other, id, replicas) == Moved::kTogether;
  });
}

}  // namespace

std::vector<int> differing(const Timeline& timeline, const TimelineStep& step, Stage stage) {
  std::vector<int> ids;
  if (step.same_everywhere(stage)) return ids;
  if (stage != Stage::kWeight && !gradients_comparable(timeline, step)) return ids;
  for (int id : timeline.trainable()) {
    if (timeline.rank_local.contains(id) || timeline.updated_by_some.contains(id)) continue;
    if (stage != Stage::kWeight && is_in_no_optimizer(step, id)) continue;
    const auto differs = [&](const std::vector<int>& replicas) {
      const auto groups = step.groups(id, stage, replicas);
      std::size_t seen = 0;
      for (const auto& group : groups) seen += group.size();
      const bool apart = groups.size() > 1 || (seen > 0 && seen < replicas.size());
      return apart && !(stage == Stage::kGradient && reduced_in_step(timeline, step, id, replicas));
    };
    const auto& replicas = timeline.replicas_of(id, stage);
    if (std::any_of(replicas.begin(), replicas.end(), differs)) ids.push_back(id);
  }
  return ids;
}

std::vector<int> agreeing(const Timeline& timeline, const TimelineStep& step) {
  std::vector<int> ids;
  for (int id : timeline.trainable()) {
    const auto groups = step.groups(id, Stage::kGradient);
    if (groups.size() == 1 && groups.front().size() == step.expected()) ids.push_back(id);
  }
  return ids;
}

std::optional<TensorDigest> local_gradient(const Timeline& timeline, const TimelineStep& step,
                                           int rank, int tensor) {
  if (auto seen = step.find(rank, tensor, Stage::kLocalGradient)) return seen;
  if (auto seen = step.find(rank, tensor, Stage::kCollectiveGradient)) return seen;
  // Neither a reducer nor a collective changed it: the optimizer got the local gradient.
  const auto& info = timeline.tensors[static_cast<std::size_t>(tensor)];
  if (info.ddp_index || timeline.layout.placements.contains(info.name)) return {};
  const auto* record = step.at(rank);
  const auto left = step.sample(rank, tensor, Stage::kLocalGradient);
  const auto got = step.sample(rank, tensor, Stage::kGradient);
  const bool changed =
      left && got && left->values != got->values;  // by code that the probe does not see
  const bool touched = record == nullptr || record->collectives > 0 || changed;
  return touched ? std::nullopt : step.find(rank, tensor, Stage::kGradient);
}

bool local_gradients_differ(const Timeline& timeline, const TimelineStep& step, int tensor) {
  std::optional<TensorDigest> first;
  for (int rank : timeline.ranks()) {
    const auto seen = local_gradient(timeline, step, rank, tensor);
    if (!seen) continue;
    if (first && first->bits != seen->bits) return true;
    first = seen;
  }
  return false;
}

std::vector<const Collective*> calls_before_step(const TimelineStep& step, int rank) {
  std::vector<const Collective*> calls;
  const auto* record = step.at(rank);
  if (record == nullptr) return calls;
  for (const auto& call : record->calls) {
    if (call.moment == "before-step" && call.op != "barrier") calls.push_back(&call);
  }
  return calls;
}

bool synchronizes_by_hand(const StepRecord& step) {
  std::int64_t listed = 0;
  for (const auto& call : step.calls) listed += call.count;
  if (listed < step.collectives) return true;  // of too many only some are listed
  return std::any_of(step.calls.begin(), step.calls.end(), [](const Collective& call) {
    const bool then =
        call.moment == "backward" || call.moment == "before-step" || call.moment == "optimizer";
    return then && (call.numel * call.count > 1 || call.target.starts_with("gradient"));
  });
}

std::vector<const Collective*> synchronizing_calls(const Timeline& timeline,
                                                   const TimelineStep& step) {
  auto calls = calls_before_step(step, step.first_rank());
  if (timeline.has_wrapper() || step.first() == nullptr) return calls;
  std::vector<const Collective*> in_hooks;
  for (const auto& call : step.first()->calls) {
    if (call.moment == "backward") in_hooks.push_back(&call);
  }
  calls.insert(calls.begin(), in_hooks.begin(), in_hooks.end());
  return calls;
}

std::set<int> unused(const Timeline& timeline, const TimelineStep& step, int rank) {
  std::set<int> ids;
  for (int id : timeline.trainable()) {
    const auto usage = step.usage(rank, id);
    if (usage && !usage->used && !usage->assigned) ids.insert(id);
  }
  return ids;
}

std::set<int> unused_on_every_rank(const Timeline& timeline, const TimelineStep& step) {
  std::set<int> common = unused(timeline, step, step.first_rank());
  for (int rank : step.distinct_users()) {
    const auto here = unused(timeline, step, rank);
    std::erase_if(common, [&](int id) { return !here.contains(id); });
  }
  return common;
}

bool is_outer_step(const Timeline& timeline, const TimelineStep& step) {
  if (step.first() == nullptr) return false;
  const auto none = unused_on_every_rank(timeline, step);
  const auto ids = timeline.trainable();
  const bool set_by_hand = std::all_of(ids.begin(), ids.end(), [&](int id) {
    return none.contains(id) || !step.usage(step.first_rank(), id);
  });
  if (!set_by_hand) return false;
  const auto actions = actions_of(step.first()->trace);
  const auto last = std::find_if(actions.rbegin(), actions.rend(), [](const auto& action) {
    return action.first.starts_with("B") || action.first.starts_with("S");
  });
  return last != actions.rend() && last->first.starts_with("S");
}

bool wrapper_expects_unused(const Timeline& timeline) {
  return timeline.flag("find_unused_parameters") || timeline.flag("static_graph");
}

std::optional<int> parameter_at(const Timeline& timeline, int ddp_index) {
  for (int id : timeline.trainable()) {
    if (timeline.tensors[static_cast<std::size_t>(id)].ddp_index == ddp_index) return id;
  }
  return {};
}

namespace {

std::optional<Where> where(const Site* site) {
  if (site == nullptr || site->file.empty()) return {};
  return Where{site->file, site->line, site->via};
}

}  // namespace

std::optional<Where> where(const Timeline& timeline, const std::string& what) {
  return where(timeline.site(what));
}

std::optional<Where> where_stepped(const Timeline& timeline, std::optional<std::int64_t> step) {
  return where(timeline.step_site(step));
}

std::optional<std::string> comm_hook_of(const Timeline& timeline) {
  if (!timeline.wrapper) return {};
  const Fact* hook = timeline.fact(timeline.first_rank(),
                                   fmt::format("wrapper {}", *timeline.wrapper), "comm_hook");
  if (hook == nullptr) return {};
  return nlohmann::json::parse(hook->value).get<std::string>();
}

std::string model_of(const Timeline& timeline) {
  const Fact* name = timeline.wrapper
                         ? timeline.fact(timeline.first_rank(),
                                         fmt::format("wrapper {}", *timeline.wrapper), "module")
                         : nullptr;
  return name == nullptr ? "model" : nlohmann::json::parse(name->value).get<std::string>();
}

FindingParameter parameter_of(const Timeline& timeline, int tensor) {
  const auto& info = timeline.tensors[static_cast<std::size_t>(tensor)];
  return {info.name, info.ddp_index};
}

std::string list_of(const std::vector<FindingParameter>& parameters, std::size_t max) {
  std::vector<std::string> words;
  for (const auto& parameter : parameters) {
    if (words.size() == max && parameters.size() > max + 1) {
      words.push_back(fmt::format("{} more", parameters.size() - max));
      break;
    }
    words.push_back(parameter.index ? fmt::format("{} (index {})", parameter.name, *parameter.index)
                                    : parameter.name);
  }
  return join(words);
}

std::string ranks_of(const std::vector<int>& ranks) {
  constexpr std::size_t kMaxListed = 8;
  if (ranks.size() > kMaxListed) return "ranks " + RankSet(ranks).text();
  std::vector<std::string> words;
  for (int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(words);
}

std::string count_of(std::size_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

}  // namespace ddp_doctor
