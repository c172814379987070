// DDP501: a rank makes no progress while others wait for it.

#include <fmt/format.h>

#include <algorithm>

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

// Without call logs: who had to be ended and said nothing, while somebody waited in vain.
std::optional<Finding> by_silence(const Timeline& timeline) {
  const auto falls = falls_of(timeline);
  if (falls.empty() || falls.front().kind != "stuck-collective") return {};
  const Fall& first = falls.front();
  const auto silent = silent_ranks(timeline);
  Finding finding = finding_of(kStalledRank);
  finding.first_step = std::max<std::int64_t>(first.step, 1);
  // Who is silent may itself wait for something that the others never sent.
  finding.certainty = Certainty::kLikely;
  finding.evidence["kind"] = "hang";
  const bool blamed = !silent.empty() && timeline.error(first.rank) != nullptr;
  finding.ranks = blamed ? silent : all_ranks(timeline);
  if (!blamed) finding.ranks = {first.rank};
  finding.message =
      blamed
          ? fmt::format("{} made no progress in step {}, while rank {} waited{}: {}.",
                        ranks_of(finding.ranks), *finding.first_step, first.rank,
                        first.phase.empty() ? "" : " in " + first.phase, telling_line(first.text))
          : fmt::format("{} made no progress in step {}{}.", ranks_of(finding.ranks),
                        *finding.first_step, doing(exit_of(timeline, first.rank)));
  return finding;
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
  finding->message[0] = 'R';  // "Rank 1 ...", "Ranks 0 and 1 ..."
  finding->prescription = cure();
  return std::vector{*finding};
}

}  // namespace

const Rule kStalledRank = {"DDP501", "stalled-rank", Severity::kError,
                           "a rank makes no progress while others wait for it", check};

}  // namespace ddp_doctor
