// DDP501: a rank makes no progress while others wait for it.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/diagnose/divergence.h"
#include "lib/diagnose/errors.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/falls.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

const RankExit* exit_of(const Timeline& timeline, int rank) {
  const auto& exits = timeline.run.exits;
  const auto found =
      std::find_if(exits.begin(), exits.end(), [&](const auto& exit) { return exit.rank == rank; });
  return found == exits.end() ? nullptr : &*found;
}

Prescription cure() {
  return {
      "Look at what this rank does in that step: data that never comes, a loop that does not end, "
      "a "
      "lock, a collective that the others do not issue.",
      ""};
}

// What the rank was doing, in words.
std::string doing(const RankExit* exit) {
  if (exit == nullptr || exit->phase.empty()) return "";
  if (exit->phase == "batch") return " (between steps: data, logging, or the program's own work)";
  return " (" + exit->phase + ")";
}

// The innermost line of the user's own code on the rank's stack.
std::optional<Where> user_line(const Timeline& timeline, int rank) {
  const auto stack = timeline.stacks.find(rank);
  if (stack == timeline.stacks.end()) return {};
  const auto frame = std::find_if(stack->second.begin(), stack->second.end(),
                                  [](const Frame& frame) { return frame.of_the_user(); });
  if (frame == stack->second.end()) return {};
  const auto relative =
      std::filesystem::path(frame->file).lexically_proximate(std::filesystem::current_path());
  const bool below = !relative.empty() && *relative.begin() != "..";
  return Where{below ? relative.string() : frame->file, frame->line};
}

// Without call logs: who had to be ended and said nothing, while somebody waited in vain.
std::optional<Finding> by_silence(const Timeline& timeline) {
  const auto falls = falls_of(timeline);
  if (falls.empty() || falls.front().kind != "stuck-collective") return {};
  // One that said itself that it waited in vain, if there is one.
  const auto waiting = std::find_if(falls.begin(), falls.end(), [&](const Fall& fall) {
    return timeline.error(fall.rank) != nullptr;
  });
  const Fall& first = waiting == falls.end() ? falls.front() : *waiting;
  const auto silent = silent_ranks(timeline);
  Finding finding = finding_of(kStalledRank);
  finding.first_step = std::max<std::int64_t>(first.step, 1);
  // Who is silent may itself wait for something that the others never sent.
  finding.certainty = Certainty::kLikely;
  finding.evidence["kind"] = "hang";
  const bool blamed = !silent.empty() && waiting != falls.end();
  finding.ranks = blamed ? silent : std::vector{first.rank};
  finding.message =
      blamed
          ? fmt::format("{} made no progress in step {}, while rank {} waited{}: {}.",
                        ranks_of(finding.ranks), *finding.first_step, first.rank,
                        first.phase.empty() ? "" : " in " + first.phase, telling_line(first.text))
          : fmt::format("{} made no progress in step {}{}.", ranks_of(finding.ranks),
                        *finding.first_step, doing(exit_of(timeline, first.rank)));
  return with_stacks(timeline, std::move(finding));
}

Verdict check(const Timeline& timeline) {
  const auto divergence = divergence_of(timeline);
  std::optional<Finding> finding;
  if (!divergence) {
    finding = by_silence(timeline);
  } else if (divergence->reason == Reason::kStalled) {
    finding = finding_of(kStalledRank, timeline, *divergence);
    finding->message =
        fmt::format("{} made no progress in step {}{}, while {}.", ranks_of(finding->ranks),
                    *finding->first_step, doing(exit_of(timeline, finding->ranks.front())),
                    waiting_in(*divergence));
  }
  if (!finding) return std::vector<Finding>{};
  for (int rank : finding->ranks) {
    const auto* exit = exit_of(timeline, rank);
    if (exit != nullptr) finding->evidence["phases"][std::to_string(rank)] = exit->phase;
  }
  if (!finding->where) finding->where = user_line(timeline, finding->ranks.front());
  finding->message[0] = 'R';  // "Rank 1 ...", "Ranks 0 and 1 ..."
  finding->prescription = cure();
  return std::vector{*finding};
}

}  // namespace

const Rule kStalledRank = {"DDP501", "stalled-rank", Severity::kError,
                           "a rank makes no progress while others wait for it", check};

}  // namespace ddp_doctor
