// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence_reason.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rank_failures.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kShownCalls = 6;
constexpr std::size_t kShownFunctions = 16;

// A rank's paired calls in `group`, by position.
std::map<std::int64_t, const LoggedCall*> in_group(const std::vector<LoggedCall>& log,
                                                   const std::string& group) {
  std::map<std::int64_t, const LoggedCall*> calls;
  for (const auto& call : log) {
    if (call.position > 0 && call.group == group) calls[call.position] = &call;
  }
  return calls;
}

// The first position in `group` at which its ranks did not all issue the same call.
std::optional<Divergence> divergence_in(const Logs& logs, const std::string& group,
                                        const std::vector<int>& members) {
  std::map<int, std::map<std::int64_t, const LoggedCall*>> calls;
  std::int64_t first = 1;
  std::int64_t last = 0;
  for (int rank : members) {
    const auto log = logs.find(rank);
    if (log == logs.end()) return {};  // cannot be decided
    auto& own = calls[rank] = in_group(*log->second, group);
    if (own.empty()) continue;
    // Calls before the oldest entry of a full log are unknown.
    if (log->second->front().number > 1) first = std::max(first, own.begin()->first);
    last = std::max(last, own.rbegin()->first);
  }
  bool in_step = true;  // until then; calls older than the logs are unknown
  for (std::int64_t position = first; position <= last; ++position) {
    Divergence found;
    for (int rank : members) {
      const auto call = calls[rank].find(position);
      if (call != calls[rank].end()) found.at[rank] = call->second;
    }
    if (found.at.empty()) continue;
    const auto all = [&](const auto& holds) {
      return std::all_of(found.at.begin(), found.at.end(),
                         [&](const auto& entry) { return holds(*entry.second); });
    };
    const LoggedCall& any = *found.at.begin()->second;
    const bool same = all([&](const LoggedCall& c) { return signature(c) == signature(any); });
    // The same call in another step: a rank has skipped one, and is ahead since then.
    const bool same_step = all([&](const LoggedCall& c) { return c.step == any.step; });
    if (position == first && first > 1 && !same_step) in_step = false;
    // A forward that evaluates may pass for one that trains, as both broadcast buffers, until what
    // follows shows the difference. Nothing follows where the second training forward meets it: it
    // broadcasts the buckets, too, and the sizes do not match.
    const bool alike =
        position < last || all([&](const LoggedCall& c) { return evaluates(c) == evaluates(any); });
    if (same && alike && (same_step || !in_step) && found.at.size() == members.size()) continue;
    found.group = group;
    found.position = position;
    found.step = found.at.begin()->second->step;
    for (const auto& [rank, call] : found.at) found.step = std::min(found.step, call->step);
    return found;
  }
  return {};
}

std::int64_t begin_of(const Divergence& divergence) {
  std::int64_t begin_ns = divergence.at.begin()->second->begin_ns;
  for (const auto& [rank, call] : divergence.at) begin_ns = std::min(begin_ns, call->begin_ns);
  return begin_ns;
}

std::optional<Divergence> first_divergence(const Timeline& timeline, const Logs& logs) {
  std::set<std::string> groups;
  for (const auto& [rank, log] : logs) {
    for (const auto& call : *log) {
      if (call.position > 0) groups.insert(call.group);
    }
  }
  std::optional<Divergence> first;
  for (const auto& group : groups) {
    auto found = divergence_in(logs, group, members_of(timeline, group));
    if (!found) continue;
    if (first && begin_of(*first) <= begin_of(*found)) continue;
    first = std::move(found);
  }
  return first;
}

// Gloo aborted a rank in a collective whose size may differ between ranks, because the received
// size was wrong: another rank issued a different size. first_divergence does not compare sizes of
// such calls.
std::optional<Divergence> size_mismatch(const Timeline& timeline, const Logs& logs) {
  for (const auto& [rank, log] : logs) {
    const auto failure = failure_of(timeline, rank);
    if (!failure || failure->kind != "mismatched-collective") continue;
    const auto last = std::find_if(log->rbegin(), log->rend(),
                                   [](const LoggedCall& call) { return call.position > 0; });
    if (last == log->rend() || !by_hand(*last)) continue;
    Divergence found;
    bool same = true;
    bool same_size = true;
    for (int member : members_of(timeline, last->group)) {
      const auto its_log = logs.find(member);
      if (its_log == logs.end()) continue;
      for (const auto& call : *its_log->second) {
        if (call.group != last->group || call.position != last->position) continue;
        found.at[member] = &call;
        same = same && signature(call) == signature(*last);
        same_size = same_size && call.numel == last->numel;
      }
    }
    if (!same || same_size) continue;
    found.group = last->group;
    found.position = last->position;
    found.step = last->step;
    found.reason = Reason::kMismatch;
    found.culprits = members_of(timeline, last->group);
    if (!last->file.empty()) found.where = Where{last->file, last->line};
    return found;
  }
  return {};
}

bool any_rank_failed(const Timeline& timeline) {
  return !rank_failures(timeline).empty() || !silent_ranks(timeline).empty() ||
         lost_a_peer_unnoticed(timeline);
}

}  // namespace

std::optional<Divergence> divergence_of(const Timeline& timeline) {
  if (timeline.run.world_size < 2 || !any_rank_failed(timeline)) return {};
  const Logs logs = logs_of(timeline);
  auto found = first_divergence(timeline, logs);
  if (auto size = size_mismatch(timeline, logs);
      size && (!found || begin_of(*size) <= begin_of(*found)))
    return size;
  if (!found || !find_reason(timeline, logs, *found)) return {};
  // One that raised waits only because it did: in a `finally`, or in an except block.
  for (const int rank : found->culprits) {
    const auto failure =
        timeline.error(rank) == nullptr ? std::nullopt : failure_of(timeline, rank);
    if (failure && is_own_failure(failure->kind)) return {};
  }
  return found;
}

std::string waiting_in(const Divergence& divergence) {
  std::map<std::string, std::vector<int>> by_call;
  for (const auto& [rank, call] : divergence.at) {
    if (std::find(divergence.culprits.begin(), divergence.culprits.end(), rank) ==
        divergence.culprits.end())
      by_call[name_of(*call)].push_back(rank);
  }
  std::string text;
  for (const auto& [call, ranks] : by_call) {
    text += fmt::format("{}{} {} in {}", text.empty() ? "" : ", ", ranks_of(ranks),
                        ranks.size() == 1 ? "waits" : "wait", call);
  }
  return text;
}

Finding finding_of(const Rule& rule, const Timeline& timeline, const Divergence& divergence) {
  Finding finding = finding_of(rule);
  finding.ranks = divergence.culprits;
  finding.first_step = std::max<std::int64_t>(divergence.step, 1);
  finding.where = divergence.where;
  finding.evidence["kind"] = "hang";
  if (!divergence.cause.empty()) finding.evidence["cause"] = divergence.cause;
  finding.evidence["group"] = divergence.group.empty() ? "all" : divergence.group;
  finding.evidence["position"] = divergence.position;
  for (int rank : members_of(timeline, divergence.group)) {
    const auto name = std::to_string(rank);
    const auto at = divergence.at.find(rank);
    finding.evidence["parted_in"][name] =
        at == divergence.at.end() ? std::string("nothing") : name_of(*at->second);
    auto& last = finding.evidence["last_calls"][name] = nlohmann::ordered_json::array();
    const auto& calls = timeline.record(rank)->calls;
    const std::size_t begin = calls.size() > kShownCalls ? calls.size() - kShownCalls : 0;
    for (std::size_t i = begin; i < calls.size(); ++i) {
      const LoggedCall& call = calls[i];
      last.push_back(fmt::format("step {}: {}{}", call.step, name_of(call),
                                 call.end_ns == 0 ? " (did not return)" : ""));
    }
  }
  return with_stacks(timeline, std::move(finding));
}

Finding with_stacks(const Timeline& timeline, Finding finding) {
  for (const auto& [rank, frames] : timeline.stacks) {
    auto& list = finding.evidence["stacks"][std::to_string(rank)] = nlohmann::ordered_json::array();
    for (const auto& frame : frames)
      list.push_back(fmt::format("{}:{} {}", frame.file, frame.line, frame.function));
  }
  for (const auto& [rank, functions] : timeline.native_stacks) {
    const std::size_t shown = std::min(functions.size(), kShownFunctions);
    finding.evidence["native_stacks"][std::to_string(rank)] =
        std::vector(functions.begin(), functions.begin() + static_cast<std::ptrdiff_t>(shown));
  }
  return finding;
}

}  // namespace ddp_doctor
