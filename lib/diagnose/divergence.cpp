#include "lib/diagnose/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <tuple>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/falls.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kShownCalls = 6;

bool by_hand(const LoggedCall& call) {
  return !call.op.starts_with("ddp.") && call.op != "data.end";
}

bool evaluates(const LoggedCall& call) {
  return call.op == "ddp.forward" && call.reduce == "no_grad";
}

bool trains(const LoggedCall& call) {
  return call.op == "ddp.backward" || (call.op == "ddp.forward" && !evaluates(call));
}

bool is_floating(const std::string& dtype) {
  return dtype.starts_with("float") || dtype.starts_with("bfloat");
}

// A hand-written collective for gradients: on one itself, or in a program that has no wrapper on
// something that may be a copy of some. A single number is a loss or a metric.
bool of_gradients(const Timeline& timeline, const LoggedCall& call) {
  if (!by_hand(call) || call.moment != "before-step") return false;
  if (call.target.starts_with("gradient")) return true;
  return !timeline.has_wrapper() && is_floating(call.dtype) && call.numel > 1;
}

// Collectives whose sizes may differ between ranks.
bool of_any_size(const LoggedCall& call) {
  return call.op.starts_with("all_to_all") || call.op.find("object") != std::string::npos ||
         call.op.find("gather") != std::string::npos ||
         call.op.find("scatter") != std::string::npos;
}

auto signature(const LoggedCall& call) {
  const bool sized = by_hand(call) && !of_any_size(call);
  return std::tuple(call.op, by_hand(call) ? call.reduce : call.target,
                    sized ? call.dtype : std::string(), sized ? call.numel : 0);
}

using Logs = std::map<int, const std::vector<LoggedCall>*>;

Logs logs_of(const Timeline& timeline) {
  Logs logs;
  for (int rank : all_ranks(timeline)) {
    const auto* record = timeline.record(rank);
    if (record != nullptr && !record->calls.empty()) logs[rank] = &record->calls;
  }
  return logs;
}

std::vector<int> members_of(const Timeline& timeline, const std::string& group) {
  if (group.empty()) return all_ranks(timeline);
  std::vector<int> members;
  std::istringstream list(group);
  for (std::string rank; std::getline(list, rank, ',');) members.push_back(std::stoi(rank));
  return members;
}

// A rank's paired calls in `group`, by position.
std::map<std::int64_t, const LoggedCall*> in_group(const std::vector<LoggedCall>& log,
                                                   const std::string& group) {
  std::map<std::int64_t, const LoggedCall*> calls;
  for (const auto& call : log) {
    if (call.position > 0 && call.group == group) calls[call.position] = &call;
  }
  return calls;
}

// The first position in `group` at which not all of its ranks issued the same.
std::optional<Divergence> parting_in(const Logs& logs, const std::string& group,
                                     const std::vector<int>& members) {
  std::map<int, std::map<std::int64_t, const LoggedCall*>> calls;
  std::int64_t first = 1;
  std::int64_t last = 0;
  for (int rank : members) {
    const auto log = logs.find(rank);
    if (log == logs.end()) return {};  // it would be a guess
    auto& own = calls[rank] = in_group(*log->second, group);
    if (own.empty()) continue;
    // What came before the oldest entry of a full log is not known.
    if (log->second->front().number > 1) first = std::max(first, own.begin()->first);
    last = std::max(last, own.rbegin()->first);
  }
  for (std::int64_t position = first; position <= last; ++position) {
    Divergence found;
    for (int rank : members) {
      const auto call = calls[rank].find(position);
      if (call != calls[rank].end()) found.at[rank] = call->second;
    }
    const bool same = std::all_of(found.at.begin(), found.at.end(), [&](const auto& entry) {
      return signature(*entry.second) == signature(*found.at.begin()->second);
    });
    if (same && found.at.size() == members.size()) continue;
    found.group = group;
    found.position = position;
    found.step = 0;
    for (const auto& [rank, call] : found.at) found.step = std::max(found.step, call->step);
    return found;
  }
  return {};
}

std::optional<Divergence> first_parting(const Timeline& timeline, const Logs& logs) {
  std::set<std::string> groups;
  for (const auto& [rank, log] : logs) {
    for (const auto& call : *log) {
      if (call.position > 0) groups.insert(call.group);
    }
  }
  std::optional<Divergence> first;
  std::int64_t first_ns = 0;
  for (const auto& group : groups) {
    auto found = parting_in(logs, group, members_of(timeline, group));
    if (!found) continue;
    std::int64_t begin_ns = found->at.begin()->second->begin_ns;
    for (const auto& [rank, call] : found->at) begin_ns = std::min(begin_ns, call->begin_ns);
    if (first && first_ns <= begin_ns) continue;
    first = std::move(found);
    first_ns = begin_ns;
  }
  return first;
}

// Decides what a parting is.
class Judge {
 public:
  Judge(const Timeline& timeline, const Logs& logs, Divergence& found)
      : timeline_(timeline), logs_(logs), found_(found) {
    for (int rank : members_of(timeline, found.group)) {
      if (!found.at.contains(rank)) missing_.push_back(rank);
    }
  }

  // False: the parting is a consequence of something else.
  bool decide() {
    for (int rank : missing_) {
      const auto fall = fall_of(timeline_, rank);
      if (fall && of_its_own(*fall)) return false;
    }
    return missing_.empty() ? decide_between_calls() : decide_on_missing();
  }

 private:
  bool say(Reason reason, std::vector<int> culprits, std::string cause = "") {
    found_.reason = reason;
    found_.culprits = std::move(culprits);
    found_.cause = std::move(cause);
    return true;
  }

  std::vector<int> those(const std::function<bool(const LoggedCall&)>& holds) const {
    std::vector<int> ranks;
    for (const auto& [rank, call] : found_.at) {
      if (holds(*call)) ranks.push_back(rank);
    }
    return ranks;
  }

  const LoggedCall* last_of(int rank) const {
    return logs_.at(rank)->empty() ? nullptr : &logs_.at(rank)->back();
  }

  bool finished(int rank) const {
    const auto* record = timeline_.record(rank);
    return record != nullptr && std::any_of(record->events.begin(), record->events.end(),
                                            [](const Event& event) { return event.kind == "end"; });
  }

  // `rank` issued such a call from that line, at any time or in `step`.
  bool visited(int rank, const LoggedCall& site, std::optional<std::int64_t> step = {}) const {
    return std::any_of(logs_.at(rank)->begin(), logs_.at(rank)->end(), [&](const LoggedCall& call) {
      return call.file == site.file && call.line == site.line && call.op == site.op &&
             (!step || call.step == *step);
    });
  }
  bool visited_by_any(const std::vector<int>& ranks, const LoggedCall& site) const {
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return visited(rank, site); });
  }

  // The data loader that `rank` exhausted since it last trained, before `until` (null: the end).
  const LoggedCall* data_end(int rank, const LoggedCall* until) const {
    const LoggedCall* end = nullptr;
    for (const auto& call : *logs_.at(rank)) {
      if (until != nullptr && call.number >= until->number) break;
      if (call.op == "data.end") end = &call;
      if (trains(call)) end = nullptr;
    }
    return end;
  }

  bool uneven(std::vector<int> culprits) {
    for (int rank : culprits) {
      const auto call = found_.at.find(rank);
      const LoggedCall* end = data_end(rank, call == found_.at.end() ? nullptr : call->second);
      if (end != nullptr && !found_.where) found_.where = Where{end->file, end->line};
    }
    return say(Reason::kUneven, std::move(culprits),
               found_.where ? "its data loader was exhausted" : "");
  }

  bool local(std::vector<int> culprits) {
    const LoggedCall& call = *found_.at.at(culprits.front());
    found_.where = Where{call.file, call.line};
    return say(Reason::kLocal, std::move(culprits));
  }

  bool mismatch(std::string cause = "") {
    const LoggedCall& call = *found_.at.begin()->second;
    found_.where = Where{call.file, call.line};
    std::vector<int> culprits = members_of(timeline_, found_.group);
    return say(Reason::kMismatch, std::move(culprits), std::move(cause));
  }

  bool decide_on_missing() {
    const LoggedCall& call = *found_.at.begin()->second;
    const auto present = those([](const LoggedCall&) { return true; });
    std::vector<int> gone;
    std::vector<int> elsewhere;
    std::vector<int> stalled;
    for (int rank : missing_) {
      const LoggedCall* last = last_of(rank);
      if (finished(rank)) {
        gone.push_back(rank);
      } else if (last != nullptr && last->position > 0 && last->end_ns == 0) {
        elsewhere.push_back(rank);
      } else {
        stalled.push_back(rank);
      }
    }
    if (!gone.empty()) {
      const bool goes_on =
          trains(call) || of_gradients(timeline_, call) || visited_by_any(gone, call);
      return goes_on ? uneven(std::move(gone)) : local(present);
    }
    if (!stalled.empty()) {
      if (const LoggedCall* last = last_of(stalled.front()))
        found_.where = Where{last->file, last->line};
      return say(Reason::kStalled, std::move(stalled));
    }
    const LoggedCall& other = *last_of(elsewhere.front());
    // It waits in an earlier call of the same group, which the others have left without it: a
    // backward that they finished with gradients missing. What was missing is another rule's.
    if (other.group == found_.group) return false;
    return mismatch("they wait in collectives of different groups");
  }

  bool decide_between_calls() {
    const auto gradients = those([&](const LoggedCall& c) { return of_gradients(timeline_, c); });
    if (!gradients.empty()) return manual_sync(gradients);
    const auto evaluating = those(evaluates);
    const auto training = those(trains);
    const auto hand = those(by_hand);
    if (!evaluating.empty()) {
      std::vector<int> others = training.empty() ? hand : training;
      if (others.empty()) return mismatch();
      const LoggedCall& site = *found_.at.at(evaluating.front());
      if (!visited_by_any(others, site)) return local(evaluating);
      return uneven(std::move(others));  // their evaluation has come to its end
    }
    if (training.empty()) return decide_between(hand);
    if (hand.empty()) return mismatch(skipped_backward());
    return decide_between(training, hand);
  }

  // All by hand, and different.
  bool decide_between(const std::vector<int>& hand) {
    std::vector<int> alone;
    for (int rank : hand) {
      std::vector<int> others = hand;
      std::erase_if(others, [&](int other) {
        return signature(*found_.at.at(other)) == signature(*found_.at.at(rank));
      });
      const LoggedCall& call = *found_.at.at(rank);
      const bool their_own_is_shared = std::all_of(others.begin(), others.end(), [&](int other) {
        return visited(rank, *found_.at.at(other)) || found_.at.at(other)->op == "barrier";
      });
      if (call.op != "barrier" && !visited_by_any(others, call) && their_own_is_shared)
        alone.push_back(rank);
    }
    if (!alone.empty() && alone.size() < hand.size()) return local(alone);
    return mismatch();
  }

  // Some train on, others are in a collective of their own.
  bool decide_between(const std::vector<int>& training, const std::vector<int>& hand) {
    const LoggedCall& site = *found_.at.at(hand.front());
    const bool ended = std::all_of(hand.begin(), hand.end(), [&](int rank) {
      return data_end(rank, found_.at.at(rank)) != nullptr;
    });
    if (ended) return uneven(hand);
    const bool both_in_step = std::all_of(training.begin(), training.end(),
                                          [&](int rank) { return visited(rank, site, site.step); });
    if (both_in_step) return mismatch();
    if (visited_by_any(training, site)) return uneven(hand);
    // Nobody else ever came there. What rank 0 does alone is usually meant for it alone.
    return hand == std::vector{0} ? local(hand) : uneven(hand);
  }

  bool manual_sync(const std::vector<int>& gradients) {
    const LoggedCall& call = *found_.at.at(gradients.front());
    found_.where = Where{call.file, call.line};
    std::map<int, std::set<std::string>> targets;
    std::set<std::string> all;
    std::size_t most = 0;
    for (const auto& [rank, at] : found_.at) {
      auto& own = targets[rank];
      for (const auto& other : *logs_.at(rank)) {
        if (other.step == call.step && of_gradients(timeline_, other)) {
          own.insert(other.target.empty() ? fmt::format("{} elements", other.numel) : other.target);
        }
      }
      all.insert(own.begin(), own.end());
      most = std::max(most, own.size());
    }
    std::vector<int> culprits;
    std::set<std::string> left_out;
    for (const auto& [rank, own] : targets) {
      if (own.size() == most && targets.size() > 1 && own == targets[gradients.front()]) continue;
      culprits.push_back(rank);
    }
    for (const auto& target : all) {
      const bool everywhere = std::all_of(targets.begin(), targets.end(), [&](const auto& entry) {
        return entry.second.contains(target);
      });
      if (!everywhere && target.starts_with("gradient of "))
        found_.parameters.push_back(target.substr(sizeof "gradient of " - 1));
    }
    if (culprits.empty()) {
      for (const auto& [rank, own] : targets) culprits.push_back(rank);
    }
    return say(Reason::kManualSync, std::move(culprits));
  }

  // A rank that ran forwards without their backward, more often than the others did.
  std::string skipped_backward() const {
    std::map<std::size_t, std::vector<std::pair<int, std::int64_t>>> by_count;
    for (const auto& [rank, at] : found_.at) {
      std::size_t count = 0;
      std::int64_t step = 0;
      const LoggedCall* open = nullptr;
      for (const auto& call : *logs_.at(rank)) {
        if (call.op == "ddp.backward") open = nullptr;
        if (call.op != "ddp.forward" || evaluates(call)) continue;
        if (open != nullptr) {
          ++count;
          step = open->step;
        }
        open = &call;
      }
      by_count[count].emplace_back(rank, step);
    }
    if (by_count.size() < 2) return "";
    const auto& [rank, step] = by_count.rbegin()->second.front();
    return fmt::format("rank {} left out the backward of a forward in step {}", rank, step);
  }

  const Timeline& timeline_;
  const Logs& logs_;
  Divergence& found_;
  std::vector<int> missing_;
};

bool anybody_fell(const Timeline& timeline) {
  return !falls_of(timeline).empty() || !silent_ranks(timeline).empty();
}

}  // namespace

std::optional<Divergence> divergence_of(const Timeline& timeline) {
  if (timeline.run.world_size < 2 || !anybody_fell(timeline)) return {};
  const Logs logs = logs_of(timeline);
  auto found = first_parting(timeline, logs);
  if (!found || !Judge(timeline, logs, *found).decide()) return {};
  return found;
}

std::string name_of(const LoggedCall& call) {
  const std::string place = call.file.empty() ? "" : fmt::format(" at {}:{}", call.file, call.line);
  if (evaluates(call))
    return fmt::format("a forward of {} without gradients{}", call.target, place);
  if (call.op.starts_with("ddp."))
    return fmt::format("the {} of {}{}", call.op.substr(4), call.target, place);
  std::string what = call.op;
  if (call.numel > 0) what += fmt::format(" of {} x {}", call.numel, call.dtype);
  if (!call.target.empty()) what += fmt::format(" ({})", call.target);
  return what + place;
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
      last.push_back(
          fmt::format("step {}: {}{}", call.step,
                      call.op == "data.end" ? "the data loader is exhausted" : name_of(call),
                      call.end_ns == 0 ? " (did not return)" : ""));
    }
  }
  return finding;
}

}  // namespace ddp_doctor
