// SPDX-License-Identifier: BSD-3-Clause
// Timeouts of several ranks, read together: which rank is behind, elsewhere, or missing.
//
// A watchdog reports the collective in which its rank waits, by its number in the process group,
// and what the rank has issued and completed there. A rank that has issued fewer calls than the one
// that others wait in is the rank that they wait for. Ranks that wait in different operations have
// diverged. If all have issued the call, no rank is missing from it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/explain/explanation.h"
#include "lib/explain/known_texts.h"
#include "lib/explain/weighing.h"

namespace ddp_doctor {
namespace {

constexpr int kManyRanks = 100'000;

std::string upper(const std::string& ranks) { return "R" + ranks.substr(1); }

long long number_of(const RankFields& fields, const char* what) {
  const auto* value = fields.figure(what);
  return value == nullptr ? -2 : std::atoll(value->c_str());  // -1: none was issued yet
}

// The ranks of one process group: sequence numbers are counted in each group by itself.
struct Group {
  std::string name;
  std::vector<const RankFields*> ranks;  // known ranks only

  // That reported a timeout of their own.
  std::vector<const RankFields*> waiting() const {
    std::vector<const RankFields*> waiting;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(waiting), [](const auto* fields) {
      return fields->figure("collective") != nullptr || fields->figure("waited") != nullptr;
    });
    return waiting;
  }
  bool is_whole_job() const { return name.empty() || name == "default_pg" || name == "0"; }
};

std::vector<Group> groups_of(const Explanation& explanation) {
  // Watchdogs of older versions do not name the group: then there is one.
  std::map<std::string, Group> groups;
  for (const auto& fields : explanation.fields) {
    const auto* name = fields.figure("process group");
    if (!fields.rank) continue;
    Group& group = groups[name == nullptr ? "" : *name];
    group.name = name == nullptr ? "" : *name;
    group.ranks.push_back(&fields);
  }
  if (groups.size() == 2 && groups.contains("")) {
    auto& named = groups.rbegin()->second.ranks;
    named.insert(named.end(), groups[""].ranks.begin(), groups[""].ranks.end());
    groups.erase("");
    std::sort(named.begin(), named.end(),
              [](const auto* a, const auto* b) { return *a->rank < *b->rank; });
  }
  std::vector<Group> all;
  for (auto& [name, group] : groups) all.push_back(std::move(group));
  return all;
}

std::vector<int> ranks_among(const std::vector<const RankFields*>& list) {
  std::vector<int> ranks;
  for (const auto* fields : list) ranks.push_back(*fields->rank);
  return ranks;
}

// "ALLREDUCE number 808 (98 elements)"
std::string call_of(const RankFields& fields) {
  std::string call = *fields.figure("collective");
  if (const auto* number = fields.figure("number")) call += " number " + *number;
  if (const auto* elements = fields.figure("elements"))
    call += fmt::format(" ({} element{})", *elements, *elements == "1" ? "" : "s");
  return call;
}

std::string duration_of(const RankFields& fields) {
  const long long timeout = number_of(fields, "timeout in ms");
  if (timeout <= 0) return "";
  return timeout % 1000 == 0 ? fmt::format(" {} s", timeout / 1000)
                             : fmt::format(" {} ms", timeout);
}

// What each rank waited in, ranks that agree together.
void say_who_waited(const Group& group, std::vector<std::string>& seen) {
  constexpr std::size_t kMaxCalls = 6;
  std::map<std::string, std::vector<const RankFields*>> calls;
  for (const auto* fields : group.waiting()) {
    if (fields->figure("collective") != nullptr)
      calls[duration_of(*fields) + " in " + call_of(*fields)].push_back(fields);
  }
  if (calls.size() > kMaxCalls) return;
  std::map<int, std::string> lines;  // by the lowest rank
  for (const auto& [call, ranks] : calls)
    lines[*ranks.front()->rank] =
        fmt::format("{} waited{}.", upper(ranks_of(ranks_among(ranks))), call);
  for (auto& [rank, line] : lines) seen.push_back(std::move(line));
}

// Whether the group's ranks wait in different calls; `odd`: the few that are elsewhere.
bool calls_differ(const Group& group, std::vector<std::string>& differences,
                  std::vector<int>& odd) {
  std::map<std::string, std::vector<int>> operations;
  std::set<std::string> numbers, sizes;
  for (const auto* fields : group.waiting()) {
    if (const auto* operation = fields->figure("collective"))
      operations[*operation].push_back(*fields->rank);
    if (const auto* number = fields->figure("number")) numbers.insert(*number);
    if (const auto* elements = fields->figure("elements")) sizes.insert(*elements);
  }
  if (operations.size() > 1) {
    for (const auto& [operation, ranks] : operations) differences.push_back(operation);
    const auto fewest = std::min_element(
        operations.begin(), operations.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (fewest->second.size() * 2 < group.waiting().size()) odd = fewest->second;
    return true;
  }
  if (numbers.size() == 1 && sizes.size() > 1) {
    differences.assign(sizes.begin(), sizes.end());
    return true;
  }
  return false;
}

// Ranks that have issued fewer calls than those that wait.
std::vector<int> late_in(const Group& group, std::vector<std::string>& seen) {
  const auto waiting = group.waiting();
  long long awaited = -2;
  for (const auto* fields : waiting) awaited = std::max(awaited, number_of(*fields, "number"));
  std::vector<RankFields> own;
  for (const auto* fields : group.ranks) own.push_back(*fields);
  auto late = behind(own, "last enqueued");
  if (late.empty()) {
    late = behind(own, "number");
    if (!late.empty())
      seen.push_back(fmt::format("{} issued fewer calls than the others.", upper(ranks_of(late))));
    return late;
  }
  const auto* last = *std::find_if(group.ranks.begin(), group.ranks.end(), [&](const auto* fields) {
    return *fields->rank == late.front();
  });
  const long long issued = number_of(*last, "last enqueued");
  if (issued >= awaited) {
    seen.push_back(fmt::format("{} issued fewer calls than the others.", upper(ranks_of(late))));
  } else {
    seen.push_back(
        fmt::format("{} never issued number {}, in which others wait: the last one "
                    "issued there was number {}{}.",
                    upper(ranks_of(late)), awaited, issued,
                    number_of(*last, "last completed") == issued
                        ? ", and it has completed, so nothing was left to wait for"
                        : ""));
  }
  return late;
}

// Ranks without a message, with numbers below those that have one.
std::vector<int> silent_in(const Group& group) {
  std::vector<int> silent;
  const auto ranks = ranks_among(group.ranks);
  if (ranks.size() < 2 || ranks.back() >= kManyRanks) return silent;
  for (int rank = 0; rank < ranks.back(); ++rank) {
    if (!is_in(ranks, rank)) silent.push_back(rank);
  }
  return silent;
}

// Several ranks wait in one call that each of them has issued, and no rank is known to be missing.
bool nobody_is_missing(const Group& group) {
  const auto waiting = group.waiting();
  std::set<std::string> calls;
  for (const auto* fields : waiting) {
    if (fields->figure("number") == nullptr || fields->figure("collective") == nullptr ||
        number_of(*fields, "last enqueued") < number_of(*fields, "number"))
      return false;
    calls.insert(call_of(*fields));
  }
  return waiting.size() > 1 && waiting.size() == group.ranks.size() && calls.size() == 1;
}

}  // namespace

void weigh_timeouts(Explanation& explanation) {
  const auto groups = groups_of(explanation);
  auto& seen = explanation.seen;
  std::set<int> suspects;
  if (groups.size() > 1)
    seen.push_back(
        fmt::format("Ranks wait in {} process groups. Sequence numbers are counted in each "
                    "by itself; a rank that is stuck in one keeps those of the others "
                    "waiting.",
                    groups.size()));
  constexpr std::size_t kMaxGroups = 8;
  for (std::size_t i = 0; i < std::min(groups.size(), kMaxGroups); ++i) {
    const Group& group = groups[i];
    if (groups.size() > 1) seen.push_back(fmt::format("In process group {}:", group.name));
    say_who_waited(group, seen);
    std::vector<std::string> differences;
    std::vector<int> odd;
    if (calls_differ(group, differences, odd)) {
      seen.push_back(
          fmt::format("Ranks wait in different collectives ({}): they issued different "
                      "calls ({}).",
                      fmt::join(differences, " and "), kCollectiveMismatch.code));
      put(explanation, kCollectiveMismatch, 0);
      if (!odd.empty()) {
        seen.push_back(fmt::format("{} {} elsewhere in the program than the others.",
                                   upper(ranks_of(odd)), odd.size() == 1 ? "is" : "are"));
        suspects.insert(odd.begin(), odd.end());
      }
    }
    const auto late = late_in(group, seen);
    suspects.insert(late.begin(), late.end());
    if (!late.empty() || !odd.empty()) continue;
    const auto silent = silent_in(group);
    const auto waited = ranks_of(ranks_among(group.ranks));
    if (silent.empty()) {
      if (nobody_is_missing(group))
        seen.emplace_back(
            "Each of them has issued this call, with the same operation and size. If these are all "
            "ranks of the group, none is missing: then it is a GPU, the network, or a kernel "
            "before "
            "it that does not end.");
    } else if (group.is_whole_job()) {
      seen.push_back(fmt::format("{} waited; there is no such message from {}.", upper(waited),
                                 ranks_of(silent)));
      suspects.insert(silent.begin(), silent.end());
    } else if (groups.size() == 1) {
      seen.push_back(
          fmt::format("{} waited; there is no such message from {}: look there first if "
                      "they belong to process group {}.",
                      upper(waited), ranks_of(silent), group.name));
    }
  }
  if (const auto first = figures_of(explanation, "signalled by rank"); first.values.size() == 1)
    seen.push_back(fmt::format("Rank {} timed out first, and told the others to dump.",
                               *first.values.begin()));
  explanation.suspects.assign(suspects.begin(), suspects.end());
  weigh_suspects(explanation);
}

}  // namespace ddp_doctor
