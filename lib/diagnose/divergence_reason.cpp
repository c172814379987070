// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/divergence_reason.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/loops.h"
#include "lib/diagnose/rank_failures.h"
#include "lib/diagnose/source_lines.h"

namespace ddp_doctor {
namespace {

std::optional<Where> place_of(const LoggedCall& call) {
  if (call.file.empty()) return {};  // a program without source lines
  return Where{call.file, call.line};
}

// Decides why the ranks diverged.
class Judge {
 public:
  Judge(const Timeline& timeline, const Logs& logs, Divergence& found)
      : timeline_(timeline), logs_(logs), found_(found) {
    for (int rank : members_of(timeline, found.group)) {
      if (found.at.contains(rank)) continue;
      if (const auto* forward = waits_in_wrapper(rank)) {
        found.at[rank] = forward;
      } else {
        missing_.push_back(rank);
      }
    }
  }

  // False if the divergence is a consequence of something else.
  bool decide() {
    for (int rank : missing_) {
      const auto failure = failure_of(timeline_, rank);
      if (failure && is_own_failure(failure->kind)) return false;
    }
    // This one explains every later divergence.
    if (const auto skipped = skipped_backward()) {
      const auto& [rank, step] = *skipped;
      return mismatch(
          fmt::format("rank {} skipped the backward of a forward in step {}", rank, step), {rank});
    }
    auto done = ahead();
    if (!done.empty()) return uneven(std::move(done), true);
    return missing_.empty() ? decide_between_calls() : decide_on_missing();
  }

 private:
  bool set_reason(Reason reason, std::vector<int> culprits, std::string cause = "") {
    found_.reason = reason;
    found_.culprits = std::move(culprits);
    found_.cause = std::move(cause);
    return true;
  }

  std::vector<int> ranks_where(const std::function<bool(const LoggedCall&)>& holds) const {
    std::vector<int> ranks;
    for (const auto& [rank, call] : found_.at) {
      if (holds(*call)) ranks.push_back(rank);
    }
    return ranks;
  }

  // The collective that the rank waits in.
  const LoggedCall* waiting_call(int rank) const {
    const LoggedCall* call = waits_in(*logs_.at(rank));
    return call != nullptr && call->position > 0 ? call : nullptr;
  }

  // The forward in which DistributedDataParallel itself waits for the others, to make its buckets
  // anew: the log takes it for a forward that synchronizes nothing.
  const LoggedCall* waits_in_wrapper(int rank) const {
    const auto stack = timeline_.stacks.find(rank);
    const auto log = logs_.find(rank);
    if (stack == timeline_.stacks.end() || stack->second.empty() || log == logs_.end() ||
        log->second->empty())
      return nullptr;
    const LoggedCall& last = log->second->back();
    const bool inside = last.op == "ddp.forward" && last.end_ns == 0 &&
                        stack->second.front().file.ends_with("torch/nn/parallel/distributed.py");
    return inside ? &last : nullptr;
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
             evaluates(call) == evaluates(site) && (!step || call.step == *step);
    });
  }
  bool visited_by_any(const std::vector<int>& ranks, const LoggedCall& site) const {
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return visited(rank, site); });
  }

  // The data loader that `rank` exhausted since the last call that the whole group issued.
  const LoggedCall* data_end(int rank) const {
    const auto at = found_.at.find(rank);
    const LoggedCall* end = nullptr;
    for (const auto& call : *logs_.at(rank)) {
      if (at != found_.at.end() && call.number >= at->second->number) break;
      if (call.op == "data.end") end = &call;
      if (call.position > 0 && call.group == found_.group) end = nullptr;
    }
    return end;
  }

  // `rank` is in a pass over the data that starts at that line.
  bool in_pass_at(int rank, const LoggedCall& line) const {
    std::int64_t passes = 0;
    for (const auto& call : *logs_.at(rank)) {
      if (call.file != line.file || call.line != line.line) continue;
      if (call.op == "data.begin") ++passes;
      if (call.op == "data.end") --passes;
    }
    return passes > 0;
  }

  // `rank` continued training after that call: it was asynchronous.
  bool trained_after(int rank, const LoggedCall& from) const {
    return std::any_of(logs_.at(rank)->begin(), logs_.at(rank)->end(), [&](const LoggedCall& call) {
      return call.number > from.number && trains(call);
    });
  }

  // `rank` issued that call while a forward of a wrapper was running.
  bool in_forward(int rank, const LoggedCall& issued) const {
    return std::any_of(logs_.at(rank)->begin(), logs_.at(rank)->end(), [&](const LoggedCall& call) {
      return call.op == "ddp.forward" && call.end_ns == 0 && call.number < issued.number;
    });
  }

  // Ranks that finished the pass over the data that the others are still in.
  std::vector<int> ahead() const {
    std::vector<int> ranks;
    const LoggedCall* end = nullptr;
    const auto members = members_of(timeline_, found_.group);
    for (int rank : members) {
      if (const auto* own = data_end(rank)) {
        ranks.push_back(rank);
        end = own;
      }
    }
    if (end == nullptr || ranks.size() == members.size()) return {};
    const bool others_continue = std::any_of(members.begin(), members.end(), [&](int rank) {
      return std::find(ranks.begin(), ranks.end(), rank) == ranks.end() && in_pass_at(rank, *end);
    });
    return others_continue ? ranks : std::vector<int>{};
  }

  bool uneven(std::vector<int> culprits, bool exhausted = false) {
    const LoggedCall* end = data_end(culprits.front());
    const auto at = found_.at.find(culprits.front());
    found_.decided = !exhausted && decided_to_stop(culprits.front());
    if (end != nullptr && !found_.decided) {
      found_.where = place_of(*end);
    } else if (at != found_.at.end()) {
      found_.where = place_of(*at->second);
    }
    return set_reason(Reason::kUneven, std::move(culprits),
                      found_.decided ? "decided alone to stop, before the data ended"
                      : exhausted    ? "the data loader was exhausted"
                                     : "");
  }

  std::ptrdiff_t passes(int rank, const char* what) const {
    const auto& log = *logs_.at(rank);
    return std::count_if(log.begin(), log.end(), [&](const auto& call) { return call.op == what; });
  }

  // `rank` left a pass over its data before the end; or it began no further pass, and the others,
  // who had finished as many, did.
  bool decided_to_stop(int rank) const {
    const auto ended = passes(rank, "data.end");
    const auto begun = passes(rank, "data.begin");
    if (begun > ended) return true;
    const auto members = members_of(timeline_, found_.group);
    return std::all_of(members.begin(), members.end(), [&](int other) {
      return logs_.at(other)->front().number == 1 && passes(other, "data.end") == ended &&
             (other == rank || passes(other, "data.begin") > begun);
    });
  }

  bool local(std::vector<int> culprits) {
    const LoggedCall& call = *found_.at.at(culprits.front());
    found_.where = place_of(call);
    return set_reason(Reason::kLocal, std::move(culprits));
  }

  // Without `culprits`, nobody can be blamed more than the others.
  bool mismatch(std::string cause = "", std::vector<int> culprits = {}) {
    const LoggedCall& call = *found_.at.begin()->second;
    found_.where = place_of(call);
    if (culprits.empty()) culprits = members_of(timeline_, found_.group);
    return set_reason(Reason::kMismatch, std::move(culprits), std::move(cause));
  }

  bool decide_on_missing() {
    const LoggedCall& call = *found_.at.begin()->second;
    const auto present = ranks_where([](const LoggedCall&) { return true; });
    std::vector<int> gone;
    std::vector<int> elsewhere;
    std::vector<int> stalled;
    for (int rank : missing_) {
      if (finished(rank)) {
        gone.push_back(rank);
      } else if (waiting_call(rank) != nullptr) {
        elsewhere.push_back(rank);
      } else {
        stalled.push_back(rank);
      }
    }
    if (!gone.empty()) {
      const bool continues =
          trains(call) || of_gradients(timeline_, call) || visited_by_any(gone, call);
      return continues ? uneven(std::move(gone)) : local(present);
    }
    if (!stalled.empty()) return set_reason(Reason::kStalled, std::move(stalled));
    const LoggedCall& other = *waiting_call(elsewhere.front());
    // It waits in an earlier call of the same group that the others have returned from: a backward
    // that they finished with gradients missing. Another rule reports what was missing.
    if (other.group == found_.group) return false;
    return decide_between_groups(present, elsewhere);
  }

  // Which group's divergence began first is chance: the reason is the same.
  bool decide_between_groups(const std::vector<int>& here, const std::vector<int>& elsewhere) {
    for (const int rank : elsewhere) found_.at[rank] = waiting_call(rank);
    const auto all = [&](const std::vector<int>& ranks, const auto& holds) {
      return std::all_of(ranks.begin(), ranks.end(),
                         [&](int rank) { return holds(*found_.at.at(rank)); });
    };
    bool decided = false;
    if (all(here, trains) && all(elsewhere, by_hand)) decided = decide_between(here, elsewhere);
    if (all(here, by_hand) && all(elsewhere, trains)) decided = decide_between(elsewhere, here);
    if (decided && found_.reason != Reason::kMismatch) return true;
    return mismatch("they wait in collectives of different groups");
  }

  bool decide_between_calls() {
    const auto gradients =
        ranks_where([&](const LoggedCall& c) { return of_gradients(timeline_, c); });
    if (!gradients.empty()) return manual_sync(gradients);
    const auto evaluating = ranks_where(evaluates);
    const auto training = ranks_where(trains);
    const auto hand = ranks_where(by_hand);
    if (!evaluating.empty()) {
      std::vector<int> others = training.empty() ? hand : training;
      if (others.empty()) return mismatch();
      const LoggedCall& site = *found_.at.at(evaluating.front());
      if (!visited_by_any(others, site)) return local(evaluating);
      return uneven(std::move(others));  // they finished evaluating
    }
    if (training.empty()) return decide_between(hand);
    if (hand.empty()) return mismatch();
    return decide_between(training, hand);
  }

  // All calls are hand-written, and they differ.
  bool decide_between(const std::vector<int>& hand) {
    std::vector<int> alone;
    for (int rank : hand) {
      std::vector<int> others = hand;
      std::erase_if(others, [&](int other) {
        return signature(*found_.at.at(other)) == signature(*found_.at.at(rank));
      });
      const LoggedCall& call = *found_.at.at(rank);
      const bool others_are_shared = std::all_of(others.begin(), others.end(), [&](int other) {
        return visited(rank, *found_.at.at(other)) || found_.at.at(other)->op == "barrier";
      });
      if (call.op != "barrier" && !visited_by_any(others, call) && others_are_shared)
        alone.push_back(rank);
    }
    if (!alone.empty() && alone.size() < hand.size()) return local(alone);
    return mismatch();
  }

  // Some ranks continue training, others are in a hand-written collective.
  bool decide_between(const std::vector<int>& training, const std::vector<int>& hand) {
    const LoggedCall& site = *found_.at.at(hand.front());
    const bool both_in_step = std::all_of(training.begin(), training.end(),
                                          [&](int rank) { return visited(rank, site, site.step); });
    if (both_in_step || trained_after(hand.front(), site)) return mismatch();
    if (visited_by_any(training, site)) return uneven(hand);
    if (in_forward(hand.front(), site)) return local(hand);
    // No other rank ever reached that line. If it is inside the training loop, these ranks issued
    // the collective alone; if it is after the loop, they have left it.
    const auto here = timeline_.stacks.find(training.front());
    const auto there = timeline_.stacks.find(hand.front());
    if (here != timeline_.stacks.end() && there != timeline_.stacks.end()) {
      if (under_rank_condition(here->second, there->second)) return local(hand);
      if (returned_from_loop_of(here->second, there->second)) return uneven(hand);
      if (const auto inside = in_loop_of(here->second, there->second))
        return *inside ? local(hand) : uneven(hand);
    }
    const LoggedCall& trains_at = *found_.at.at(training.front());
    if (trains_at.file == site.file) {
      if (const auto some = for_some_ranks(lines_of(site.file), trains_at.line, site.line))
        return *some ? local(hand) : uneven(hand);
    }
    // A call of rank 0 alone is usually local to it, but a barrier follows the loop.
    return hand == std::vector{0} && site.op != "barrier" ? local(hand) : uneven(hand);
  }

  bool manual_sync(const std::vector<int>& gradients) {
    const LoggedCall& call = *found_.at.at(gradients.front());
    std::map<int, std::set<std::string>> targets;
    std::set<std::string> all;
    std::size_t max_targets = 0;
    for (const auto& [rank, at] : found_.at) {
      auto& own = targets[rank];
      for (const auto& other : *logs_.at(rank)) {
        if (other.step == call.step && of_gradients(timeline_, other)) {
          own.insert(other.target.empty() ? fmt::format("{} elements", other.numel) : other.target);
        }
      }
      all.insert(own.begin(), own.end());
      max_targets = std::max(max_targets, own.size());
    }
    std::vector<int> gone;  // synchronized nothing in this step, and is not about to
    for (const auto& [rank, own] : targets) {
      if (own.empty() && !of_gradients(timeline_, *found_.at.at(rank))) gone.push_back(rank);
    }
    if (!gone.empty()) return uneven(std::move(gone));
    found_.where = place_of(call);
    std::vector<int> culprits;
    for (const auto& [rank, own] : targets) {
      if (own.size() == max_targets && targets.size() > 1 && own == targets[gradients.front()])
        continue;
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
    return set_reason(Reason::kManualSync, std::move(culprits));
  }

  // The number of forwards without a backward, at lines where other forwards had one; and the step
  // of the last one.
  std::pair<std::size_t, std::int64_t> skipped_backwards(int rank) const {
    std::set<std::pair<std::string, int>> trained_at;
    const LoggedCall* open = nullptr;
    std::vector<const LoggedCall*> left_out;
    for (const auto& call : *logs_.at(rank)) {
      if (call.op == "ddp.backward" && open != nullptr) {
        trained_at.insert({open->file, open->line});
        open = nullptr;
      }
      if (call.op != "ddp.forward" || evaluates(call)) continue;
      if (open != nullptr) left_out.push_back(open);
      open = &call;
    }
    std::erase_if(left_out, [&](const auto* call) {
      return !trained_at.contains({call->file, call->line});
    });
    return {left_out.size(), left_out.empty() ? 0 : left_out.back()->step};
  }

  // The rank that skipped the backward of a forward more often than the others, and the step.
  std::optional<std::pair<int, std::int64_t>> skipped_backward() const {
    std::map<std::size_t, std::pair<int, std::int64_t>> by_count;
    for (int rank : members_of(timeline_, found_.group)) {
      const auto [count, step] = skipped_backwards(rank);
      by_count.emplace(count, std::pair(rank, step));
    }
    if (by_count.size() < 2) return {};
    return by_count.rbegin()->second;
  }

  const Timeline& timeline_;
  const Logs& logs_;
  Divergence& found_;
  std::vector<int> missing_;
};

}  // namespace

bool find_reason(const Timeline& timeline, const Logs& logs, Divergence& found) {
  return Judge(timeline, logs, found).decide();
}

}  // namespace ddp_doctor
