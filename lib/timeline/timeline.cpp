// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <span>

#include "lib/error.h"
#include "lib/timeline/common_steps.h"
#include "lib/timeline/private_steps.h"
#include "lib/timeline/replica_sets.h"
#include "lib/timeline/seen_steps.h"
#include "lib/timeline/uneven_rounds.h"
#include "lib/timeline/value_checks.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxRanksShown = 8;

// By itself, or because it was ended: SIGTERM is a launcher's.
bool failed(const RankExit& exit) {
  using Kind = RankExit::Kind;
  // Gloo's threads abort the process where a peer's message has another size.
  const bool aborted = exit.code == SIGABRT && exit.phase == "collective";
  return (exit.kind == Kind::kExited && exit.code != 0) || exit.kind == Kind::kStopped ||
         exit.kind == Kind::kTimedOut ||
         (exit.kind == Kind::kSignaled && (exit.code == SIGTERM || aborted));
}

}  // namespace
Timeline::Timeline() = default;
Timeline::Timeline(Timeline&&) noexcept = default;
Timeline& Timeline::operator=(Timeline&&) noexcept = default;
Timeline::~Timeline() = default;

Timeline Timeline::merge(RunInfo run, const std::vector<RankRecord>& records,
                         std::optional<std::int64_t> until) {
  Timeline timeline = assemble(std::move(run), records, until);
  const auto seen =
      std::make_shared<SeenSteps>(timeline.run_ids_, timeline.first_rank(), timeline.span(),
                                  timeline.tensors.size(), std::map<int, std::filesystem::path>{});
  for (auto& step : timeline.steps) {
    std::vector<std::vector<PackedRow>> by_rank(step.ranks.size());
    for (const auto& record : records) {
      const int rank = record.header.rank;
      if (step.at(rank) == nullptr) continue;
      const auto found = std::lower_bound(
          record.steps.begin(), record.steps.end(), step.recorded(rank),
          [](const StepRecord& one, std::int64_t wanted) { return one.step < wanted; });
      if (found != record.steps.end() && found->step == step.recorded(rank))
        by_rank[static_cast<std::size_t>(rank - timeline.first_rank())] = pack(*found);
    }
    step.details = {seen, seen->add(by_rank)};
  }
  tell_replicas_apart(timeline);
  for (auto& step : timeline.steps) compute_drift(timeline, step, nullptr);
  return timeline;
}

std::vector<int> Timeline::ranks_seen() const {
  std::set<int> ranks;
  for (const auto& [rank, record] : records_) ranks.insert(rank);
  for (const auto& exit : run.exits) {
    if (exit.rank >= 0 && exit.rank < run.world_size) ranks.insert(exit.rank);
  }
  return {ranks.begin(), ranks.end()};
}

Timeline Timeline::assemble(RunInfo run, std::vector<RankRecord> records,
                            std::optional<std::int64_t> until) {
  Timeline timeline;
  timeline.run = std::move(run);
  timeline.notes = leave_out_private_steps(records);
  if (auto note = keep_even_rounds(records)) timeline.notes.push_back(std::move(*note));
  if (until) {
    keep_common_steps(records, *until, 0);
  } else if (timeline.run.ending != Ending::kOwn) {
    keep_common_steps(records, std::numeric_limits<std::int64_t>::max(), timeline.run.ended_ns);
  }
  timeline.unpaired = keep_paired_steps(records);
  if (timeline.unpaired) timeline.notes.push_back(timeline.unpaired->in_words());
  for (auto& record : records) {
    const int rank = record.header.rank;
    if (record.header.world_size != timeline.run.world_size) {
      throw Error(
          fmt::format("the record of rank {} is from a run with {} ranks, but this run has {}: "
                      "give only folders of one run",
                      rank, record.header.world_size, timeline.run.world_size));
    }
    if (rank < 0 || rank >= timeline.run.world_size || timeline.records_.contains(rank)) {
      throw Error(
          fmt::format("rank {} is recorded twice or does not belong to a run of {} ranks: give "
                      "only folders of one run",
                      rank, timeline.run.world_size));
    }
    timeline.records_[rank] = std::make_unique<RankRecord>(std::move(record));
  }
  if (timeline.records_.empty()) throw Error("there is no record of any rank");
  timeline.ranks_ = std::make_shared<const std::vector<int>>(timeline.ranks_seen());
  timeline.whole_ = static_cast<int>(timeline.ranks().size()) == timeline.run.world_size;
  timeline.replicas = {timeline.ranks()};

  std::map<int, const RankRecord*> by_rank;
  for (auto& [rank, record] : timeline.records_) {
    timeline.adopt_tensors(rank, *record);
    by_rank[rank] = record.get();
  }
  timeline.layout = layout_of(by_rank, timeline.run.placement);
  for (auto& [rank, ids] : timeline.own_ids_) ids.resize(timeline.tensors.size(), -1);
  std::set<int> wrappers;
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& field : record->ddp_fields) wrappers.insert(field.wrapper);
  }
  if (wrappers.size() == 1) timeline.wrapper = *wrappers.begin();
  std::map<std::int64_t, TimelineStep> steps;
  std::int64_t last_step = 0;
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& step : record->steps) {
      auto& merged = steps[step.step];
      merged.number = step.step;
      merged.here = timeline.ranks_;
      merged.ranks.resize(timeline.span(), nullptr);
      merged.ranks[static_cast<std::size_t>(rank - timeline.first_rank())] = &step;
      last_step = std::max(last_step, step.step);
    }
  }
  for (auto& [number, step] : steps) timeline.steps.push_back(std::move(step));

  std::vector<std::pair<std::string, std::vector<int>>> warnings;  // each text with its ranks
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& event : record->events) {
      if (event.kind != "warning") continue;
      const auto known = std::find_if(warnings.begin(), warnings.end(),
                                      [&](const auto& w) { return w.first == event.text; });
      if (known == warnings.end()) {
        warnings.push_back({event.text, {rank}});
      } else {
        known->second.push_back(rank);
      }
    }
  }
  for (const auto& [text, ranks] : warnings) {
    const bool all = ranks == timeline.ranks();
    std::string who;
    for (const int rank : ranks) who += (who.empty() ? "rank " : ", ") + std::to_string(rank);
    timeline.notes.push_back(all ? text : who + ": " + text);
  }
  std::map<std::int64_t, std::vector<int>> ranks_by_last;
  for (const int rank : timeline.ranks()) {
    if (const auto* record = timeline.record(rank)) {
      ranks_by_last[record->steps.empty() ? 0 : record->steps.back().step].push_back(rank);
    } else {
      timeline.notes.push_back(fmt::format("rank {} left no record", rank));
    }
  }
  for (const auto& [last, ranks] : ranks_by_last) {
    if (last == last_step) break;
    const int longest = ranks_by_last.rbegin()->second.front();
    const auto shown = std::span(ranks).first(std::min(ranks.size(), kMaxRanksShown));
    const std::string who = fmt::format("rank {}{}", fmt::join(shown, ", "),
                                        shown.size() < ranks.size() ? ", ..." : "");
    timeline.notes.push_back(
        last == 0
            ? fmt::format("{} made no optimizer step, rank {} made {}", who, longest, last_step)
            : fmt::format("{} ended after step {}, rank {} continued to step {}", who, last,
                          longest, last_step));
  }
  return timeline;
}

// Ranks may know their tensors in different orders, and may not all have the same ones: what counts
// is the name, and among tensors of one name the order.
void Timeline::adopt_tensors(int rank, const RankRecord& record) {
  using Key = std::pair<std::string, int>;
  const auto keys_of = [](const std::vector<TensorInfo>& list) {
    std::map<std::string, int> seen;
    std::vector<Key> keys;
    for (const auto& tensor : list) keys.emplace_back(tensor.name, seen[tensor.name]++);
    return keys;
  };
  std::map<Key, int> known;
  for (const auto& key : keys_of(tensors)) known.emplace(key, static_cast<int>(known.size()));
  const auto keys = keys_of(record.tensors);
  auto& own = own_ids_[rank];
  auto& merged = run_ids_[rank];
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto [at, fresh] = known.emplace(keys[i], static_cast<int>(tensors.size()));
    if (fresh) {
      tensors.push_back(record.tensors[i]);
      tensors.back().id = at->second;
    }
    tensors[static_cast<std::size_t>(at->second)].trainable |= record.tensors[i].trainable;
    merged.push_back(record.tensors[i].kind == "private" ? -1 : at->second);
    own.resize(tensors.size(), -1);
    own[static_cast<std::size_t>(at->second)] = record.tensors[i].id;
  }
}

const std::vector<Ranks>& Timeline::replicas_of(int tensor, Stage stage) const {
  const auto* own = placed_->find(tensor, stage);
  return own == nullptr ? replicas : *own;
}

void Timeline::place(std::shared_ptr<const ReplicaGroups> placed) {
  placed_ = std::move(placed);
  for (auto& step : steps) step.placed = placed_;
}

const Site* Timeline::site(const std::string& what) const {
  const std::string own = wrapper ? what + " " + std::to_string(*wrapper) : what;
  const Site* other = nullptr;
  for (const auto& [rank, record] : records_) {
    for (const auto& site : record->sites) {
      if (site.what == what || site.what == own) return &site;
      if (other == nullptr && site.what.starts_with(what + " ")) other = &site;
    }
  }
  return other;
}

const Site* Timeline::step_site(std::optional<std::int64_t> number) const {
  auto at = std::lower_bound(
      steps.begin(), steps.end(), number.value_or(1),
      [](const TimelineStep& step, std::int64_t wanted) { return step.number < wanted; });
  while (at != steps.end() && at->first() == nullptr) ++at;
  if (at == steps.end()) return site("step");
  const std::string what = fmt::format("step {}", at->first()->optimizer);
  const Site* latest = nullptr;
  for (const auto& site : record(at->first_rank())->sites) {
    if (site.what == what && (latest == nullptr || site.step <= at->number)) latest = &site;
  }
  return latest == nullptr ? site("step") : latest;
}

const Fact* Timeline::fact(int rank, const std::string& subject, const std::string& key,
                           std::optional<std::int64_t> step) const {
  const auto* found = record(rank);
  if (found == nullptr) return nullptr;
  const Fact* latest = nullptr;
  for (const auto& fact : found->facts) {
    if (fact.subject == subject && fact.key == key && (!step || fact.step <= *step)) latest = &fact;
  }
  return latest;
}

const RankRecord* Timeline::record(int rank) const {
  const auto found = records_.find(rank);
  return found == records_.end() ? nullptr : found->second.get();
}

const TimelineStep* Timeline::step(std::int64_t number) const {
  const auto found =
      std::lower_bound(steps.begin(), steps.end(), number,
                       [](const auto& step, std::int64_t wanted) { return step.number < wanted; });
  return found == steps.end() || found->number != number ? nullptr : &*found;
}

std::vector<int> Timeline::trainable() const {
  std::vector<int> ids;
  for (const auto& tensor : tensors) {
    if (tensor.kind == "parameter" && tensor.trainable) ids.push_back(tensor.id);
  }
  return ids;
}

std::optional<std::string> Timeline::ddp_field(const std::string& key) const {
  for (const auto& field : records_.begin()->second->ddp_fields) {
    if (field.moment == "construction" && field.key == key &&
        field.wrapper == wrapper.value_or(field.wrapper))
      return field.value;
  }
  return {};
}

const Event* Timeline::error(int rank) const {
  const auto* found = record(rank);
  if (found == nullptr) return nullptr;
  for (const auto& event : found->events) {
    if (event.kind == "error") return &event;
  }
  const auto exit = std::find_if(run.exits.begin(), run.exits.end(),
                                 [&](const RankExit& one) { return one.rank == rank; });
  if (exit == run.exits.end() || !failed(*exit)) return nullptr;
  const std::int64_t completed = found->steps.empty() ? 0 : found->steps.back().step;
  for (const auto& event : found->events) {
    if (event.kind == "caught" && event.step > completed) return &event;
  }
  return nullptr;
}

}  // namespace ddp_doctor
