// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/replica_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace ddp_doctor {
namespace {

using Ranks = std::vector<int>;

// The ranks of its wrappers' process group; nothing if it has no wrapper, or in several groups.
std::optional<Ranks> group_of(const RankRecord& record) {
  std::optional<Ranks> group;
  for (const auto& fact : record.facts) {
    if (fact.key != "ranks" || !fact.subject.starts_with("wrapper ")) continue;
    const auto list = nlohmann::json::parse(fact.value, nullptr, false);
    if (!list.is_array()) return {};
    auto ranks = list.get<Ranks>();
    std::sort(ranks.begin(), ranks.end());
    if (group && *group != ranks) return {};
    group = std::move(ranks);
  }
  return group;
}

// The groups, if every rank is in exactly one.
std::vector<Ranks> partition(const Timeline& timeline) {
  std::set<Ranks> groups;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    const auto group = record == nullptr ? std::nullopt : group_of(*record);
    if (!group || !std::binary_search(group->begin(), group->end(), rank)) return {};
    Ranks here;
    std::set_intersection(group->begin(), group->end(), timeline.ranks().begin(),
                          timeline.ranks().end(), std::back_inserter(here));
    groups.insert(here);
  }
  std::size_t members = 0;
  for (const auto& group : groups) members += group.size();
  if (members != timeline.ranks().size()) return {};
  return {groups.begin(), groups.end()};
}

// With what a rank begins: the names, shapes and first bits of its parameters.
std::string model_of(const Timeline& timeline, const TimelineStep& start, int rank) {
  std::string text;
  for (const auto& tensor : timeline.record(rank)->tensors) {
    if (tensor.kind == "parameter")
      text += fmt::format("{} {};", tensor.name, fmt::join(tensor.sizes, ","));
  }
  for (const auto& tensor : timeline.tensors) {
    if (const auto seen = start.find(rank, tensor.id, Stage::kWeight))
      text.append(seen->bits.begin(), seen->bits.end());
  }
  return text;
}

}  // namespace

void tell_replica_sets_apart(Timeline& timeline) {
  const auto groups = partition(timeline);
  const auto* start = timeline.step(0);
  if (groups.size() < 2 || start == nullptr || !start->complete()) return;
  std::set<std::string> models;
  for (const auto& group : groups) models.insert(model_of(timeline, *start, group.front()));
  if (models.size() < groups.size()) return;
  timeline.replicas = groups;
  std::string text;
  for (const auto& group : groups)
    text += fmt::format("{}{{{}}}", text.empty() ? "" : ", ", fmt::join(group, ", "));
  timeline.notes.push_back(fmt::format(
      "several models are trained side by side: the process groups of the wrappers part the ranks "
      "into {}, which begin with different models, so ranks are compared within these",
      text));
}

// Numbers its tensors as the whole does, and so shares with it what was seen of them.
std::vector<Timeline> Timeline::replica_sets() const {
  std::vector<Timeline> sets;
  if (replicas.size() < 2) return sets;
  for (const auto& ranks : replicas) {
    const auto among = [&](int rank) {
      return std::binary_search(ranks.begin(), ranks.end(), rank);
    };
    RunInfo its_run = run;
    std::erase_if(its_run.exits, [&](const RankExit& exit) { return !among(exit.rank); });
    std::vector<RankRecord> records;
    for (const auto& [rank, record] : records_) {
      if (among(rank)) records.push_back(*record);
    }
    Timeline set = assemble(std::move(its_run), std::move(records));
    set.whole_ = whole_;
    set.replicas = {ranks};
    set.tensors = tensors;
    set.own_ids_.clear();
    set.run_ids_.clear();
    for (int rank : ranks) {
      set.own_ids_[rank] = own_ids_.at(rank);
      set.run_ids_[rank] = run_ids_.at(rank);
    }
    for (auto& tensor : set.tensors) {
      const auto held = [&](int rank) {
        return own_ids_.at(rank)[static_cast<std::size_t>(tensor.id)] >= 0;
      };
      tensor.trainable = tensor.trainable && std::any_of(ranks.begin(), ranks.end(), held);
    }
    for (auto& step : set.steps) {
      const auto* known = this->step(step.number);
      step.details = known->details;
      step.weight_drift = known->weight_drift;
    }
    for (const int rank : ranks) {
      if (const auto stack = stacks.find(rank); stack != stacks.end()) set.stacks.insert(*stack);
      if (const auto stack = native_stacks.find(rank); stack != native_stacks.end())
        set.native_stacks.insert(*stack);
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace ddp_doctor
