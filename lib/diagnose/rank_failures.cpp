// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/rank_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/diagnose/facts.h"
#include "lib/explain/wording/errors.h"

namespace ddp_doctor {
namespace {

// Ranks that failed on their own come first, then timeouts, then lost peers.
int order_of(const RankFailure& failure) {
  return failure.kind == "peer-lost" ? 2 : is_own_failure(failure.kind) ? 0 : 1;
}

// The process that read its output ended first: a launcher that was killed before it recorded its
// ranks' exits.
bool lost_its_reader(const Timeline& timeline, const Event& error) {
  return timeline.run.exits.empty() && error.text.find("BrokenPipeError") != std::string::npos;
}

bool was_stopped(const RankExit& exit) {
  return exit.kind == RankExit::Kind::kStopped || exit.kind == RankExit::Kind::kTimedOut;
}

// Every rank finished and ended with one status that no interpreter gives an error, or was stopped
// after its last step, before it could: the program's own sign, such as "start me again".
bool is_a_sign(const Timeline& timeline, int code) {
  if (code < 2 || timeline.run.exits.size() != timeline.ranks().size()) return false;
  const std::int64_t last = timeline.steps.empty() ? 0 : timeline.steps.back().number;
  return std::all_of(
      timeline.run.exits.begin(), timeline.run.exits.end(), [&](const RankExit& exit) {
        const auto* record = timeline.record(exit.rank);
        if (record == nullptr) return false;
        if (was_stopped(exit))
          return !record->steps.empty() && record->steps.back().step == last &&
                 waits_in(record->calls) == nullptr;
        const bool finished = std::any_of(record->events.begin(), record->events.end(),
                                          [](const Event& event) { return event.kind == "end"; });
        return finished && exit.kind == RankExit::Kind::kExited && exit.code == code;
      });
}

}  // namespace

bool is_own_failure(const std::string& kind) {
  return kind != "peer-lost" && kind != "stuck-collective" && kind != "mismatched-collective";
}

std::optional<RankFailure> failure_of(const Timeline& timeline, int rank) {
  if (const Event* error = timeline.error(rank)) {
    if (lost_its_reader(timeline, *error)) return {};
    return RankFailure{rank,         error->time_ns, error->step,
                       error->phase, error->text,    error_kind(error->text)};
  }
  const auto& exits = timeline.run.exits;
  const auto exit =
      std::find_if(exits.begin(), exits.end(), [&](const RankExit& e) { return e.rank == rank; });
  if (exit == exits.end()) return {};
  RankFailure failure{rank, exit->time_ns, std::max<std::int64_t>(exit->step, 1), exit->phase, "",
                      ""};
  switch (exit->kind) {
    case RankExit::Kind::kSignaled:
      // Gloo's own threads end the process if the peer's message has the wrong size.
      failure.kind = error_kind(exit->last_words) == "mismatched-collective"
                         ? "mismatched-collective"
                         : "signal";
      failure.text = fmt::format("killed by signal {} ({})", exit->code, strsignal(exit->code));
      return failure;
    case RankExit::Kind::kTimedOut:
      failure.kind = "stuck-collective";
      failure.text = "made no progress and was terminated";
      return failure;
    case RankExit::Kind::kExited:
      if (exit->code == 0 || is_a_sign(timeline, exit->code)) return {};
      failure.kind = error_kind(exit->last_words);
      failure.text = exit->last_words.empty() ? fmt::format("ended with exit status {}", exit->code)
                                              : exit->last_words;
      return failure;
    default:
      return {};
  }
}

std::vector<RankFailure> rank_failures(const Timeline& timeline) {
  std::vector<RankFailure> failures;
  for (int rank : timeline.ranks()) {
    if (auto failure = failure_of(timeline, rank)) failures.push_back(std::move(*failure));
  }
  std::stable_sort(failures.begin(), failures.end(),
                   [](const RankFailure& a, const RankFailure& b) {
                     return std::pair(order_of(a), a.time_ns) < std::pair(order_of(b), b.time_ns);
                   });
  return failures;
}

bool lost_a_peer_unnoticed(const Timeline& timeline) {
  return std::any_of(timeline.ranks().begin(), timeline.ranks().end(), [&](int rank) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || timeline.run.ending != Ending::kOwn) return false;
    const std::int64_t completed = record->steps.empty() ? 0 : record->steps.back().step;
    return std::any_of(record->events.begin(), record->events.end(), [&](const Event& event) {
      return event.kind == "caught" && event.step > completed &&
             error_kind(event.text) == "peer-lost";
    });
  });
}

std::vector<int> silent_ranks(const Timeline& timeline) {
  std::vector<int> ranks;
  if (timeline.run.ending != Ending::kOwn) return ranks;  // they were ended in the midst of a step
  for (const auto& exit : timeline.run.exits) {
    if (was_stopped(exit) && timeline.error(exit.rank) == nullptr) ranks.push_back(exit.rank);
  }
  return ranks;
}

}  // namespace ddp_doctor
