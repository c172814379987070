// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/facts.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {
namespace {

constexpr double kNsPerMs = 1e6;
// How far times of the record and the call log may contradict each other: they are taken one after
// the other.
constexpr std::int64_t kSlackNs = 1'000'000;

class PhasesReader {
 public:
  PhasesReader(const Timeline& timeline, const std::vector<Finding>& findings)
      : timeline_(timeline), findings_(findings) {}

  Phases read() {
    const auto ranks = chosen();
    std::int64_t max_steps = 0;
    for (int rank : ranks) {
      std::int64_t steps = 0;
      for (const auto& step : timeline_.steps) {
        const auto* record = timed(step, rank);
        if (record == nullptr) continue;
        ++steps;
        begin_ns_ = begin_ns_ == 0 ? record->started_ns : std::min(begin_ns_, record->started_ns);
      }
      max_steps = std::max(max_steps, steps);
    }
    if (max_steps == 0) return {};
    const auto max_blocks = static_cast<std::int64_t>(Phases::kMaxBlocks);
    phases_.steps_per_block = (max_steps + max_blocks - 1) / max_blocks;
    for (int rank : ranks) phases_.ranks.push_back(rank_of(rank));
    return std::move(phases_);
  }

 private:
  static const StepRecord* timed(const TimelineStep& step, int rank) {
    const auto* record = step.number > 0 ? step.at(rank) : nullptr;
    return record == nullptr || record->started_ns == 0 ? nullptr : record;
  }

  static std::int64_t end_of(const StepRecord& step) {
    return step.started_ns + step.duration_ns + step.probe_ns;
  }

  double ms(std::int64_t time_ns) const {
    return static_cast<double>(time_ns - begin_ns_) / kNsPerMs;
  }

  std::vector<int> chosen() {
    const auto& seen = timeline_.ranks();
    phases_.ranks_seen = seen.size();
    std::set<int> ranks;
    const auto add = [&](int rank) {
      if (ranks.size() < Phases::kMaxRanks && std::binary_search(seen.begin(), seen.end(), rank))
        ranks.insert(rank);
    };
    for (const auto& finding : findings_) {
      // A finding about all ranks selects none.
      if (finding.ranks.size() >= seen.size()) continue;
      for (int rank : finding.ranks) {
        if (end_of(rank)) add(rank);
      }
    }
    for (const auto& finding : findings_) {
      if (finding.ranks.size() >= seen.size()) continue;
      for (int rank : finding.ranks) add(rank);
    }
    for (int rank : seen) add(rank);
    return {ranks.begin(), ranks.end()};
  }

  std::optional<Phases::End> end_of(int rank) const {
    if (const auto* error = timeline_.error(rank))
      return Phases::End{ms(error->time_ns), error->step, error->phase, "raised"};
    const auto& exits = timeline_.run.exits;
    const auto exit =
        std::find_if(exits.begin(), exits.end(), [&](const auto& one) { return one.rank == rank; });
    if (exit == exits.end() || exit->time_ns == 0) return {};
    using Kind = RankExit::Kind;
    std::string how;
    if (exit->kind == Kind::kSignaled) how = fmt::format("was killed by signal {}", exit->code);
    if (exit->kind == Kind::kTimedOut) how = "stopped making progress and was killed";
    if (exit->kind == Kind::kStopped) how = "was killed with the others";
    if (exit->kind == Kind::kExited && exit->code != 0)
      how = fmt::format("ended with exit status {}", exit->code);
    if (how.empty()) return {};
    return Phases::End{ms(exit->time_ns), exit->step, exit->phase, how};
  }

  Phases::Rank rank_of(int rank) {
    Phases::Rank out;
    out.rank = rank;
    std::int64_t count = 0;
    for (const auto& step : timeline_.steps) {
      const auto* record = timed(step, rank);
      if (record == nullptr) continue;
      if (count++ % phases_.steps_per_block == 0)
        out.blocks.push_back({step.number, step.number, ms(record->started_ns)});
      auto& block = out.blocks.back();
      block.last = step.number;
      block.own_ms += static_cast<double>(record->duration_ns) / kNsPerMs;
      block.probe_ms += static_cast<double>(record->probe_ns) / kNsPerMs;
    }
    out.end = end_of(rank);
    add_calls(out);
    return out;
  }

  // By how much the record's clock is ahead of the call log's: the middle of what is possible.
  std::optional<std::int64_t> clock_difference(int rank, const std::vector<LoggedCall>& calls) {
    std::map<std::int64_t, const StepRecord*> steps;
    for (const auto& step : timeline_.steps) {
      if (const auto* record = timed(step, rank)) steps[step.recorded(rank)] = record;
    }
    constexpr auto kFar = std::numeric_limits<std::int64_t>::max();
    std::int64_t low = -kFar;
    std::int64_t high = kFar;
    for (const auto& call : calls) {
      const auto step = steps.find(call.step);
      if (step == steps.end() || !activity_of(call)) continue;
      low = std::max(low, step->second->started_ns - call.begin_ns);
      if (call.end_ns != 0) high = std::min(high, end_of(*step->second) - call.end_ns);
    }
    if (low == -kFar || high == kFar || low > high + kSlackNs) return {};
    const std::int64_t half = (std::max(high, low) - low) / 2;
    phases_.uncertainty_ms = std::max(phases_.uncertainty_ms, static_cast<double>(half) / kNsPerMs);
    return low + half;
  }

  static std::optional<Phases::Activity> activity_of(const LoggedCall& call) {
    if (call.op == "ddp.forward") return Phases::Activity::kForward;
    if (call.op == "ddp.backward") return Phases::Activity::kBackward;
    if (by_hand(call)) return Phases::Activity::kCollective;
    return {};
  }

  void add_calls(Phases::Rank& out) {
    const auto* record = timeline_.record(out.rank);
    if (record == nullptr || out.blocks.empty()) return;
    const auto difference = clock_difference(out.rank, record->calls);
    if (!difference) return;
    const auto last_step = timeline_.step(out.blocks.back().last);
    const std::int64_t last_recorded = last_step->recorded(out.rank);
    const auto& last_block = out.blocks.back();
    const double done_ms = last_block.began_ms + last_block.own_ms + last_block.probe_ms;
    for (const auto& call : record->calls) {
      const auto activity = activity_of(call);
      const bool unfinished_step = call.step > last_recorded;
      if (!activity || (phases_.steps_per_block > 1 && !unfinished_step)) continue;
      const double from = ms(call.begin_ns + *difference);
      if (call.end_ns == 0 && !out.end) continue;  // of unknown length
      double to = call.end_ns == 0 ? out.end->at_ms : ms(call.end_ns + *difference);
      if (out.end) to = std::min(to, out.end->at_ms);  // a call that raised is closed later
      if (to < std::max(from, 0.0)) continue;
      if (call.end_ns == 0 && !unfinished_step && to > done_ms) continue;  // it raised
      out.calls.push_back(
          {*activity, call.step, std::max(from, 0.0), to, call.end_ns != 0, name_of(call)});
    }
  }

  const Timeline& timeline_;
  const std::vector<Finding>& findings_;
  Phases phases_;
  std::int64_t begin_ns_ = 0;
};

}  // namespace

Phases phases_of(const Timeline& timeline, const std::vector<Finding>& findings) {
  return PhasesReader(timeline, findings).read();
}

}  // namespace ddp_doctor
