// DDP504: a rank ended with an exception or a signal. The first to fall is named with its own
// error, not the peers who then found their connections closed.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "lib/diagnose/errors.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

struct Fall {
  int rank = 0;
  std::int64_t time_ns = 0;
  std::int64_t step = 0;
  std::string phase;
  std::string text;
  std::string kind;
};

std::optional<Fall> fall_of(const Timeline& timeline, int rank) {
  if (const Event* error = timeline.error(rank)) {
    return Fall{rank,         error->time_ns, error->step,
                error->phase, error->text,    error_kind(error->text)};
  }
  const auto& exits = timeline.run.exits;
  const auto exit =
      std::find_if(exits.begin(), exits.end(), [&](const RankExit& e) { return e.rank == rank; });
  if (exit == exits.end()) return {};
  Fall fall{rank, exit->time_ns, std::max<std::int64_t>(exit->step, 1), exit->phase, "", ""};
  switch (exit->kind) {
    case RankExit::Kind::kSignaled:
      fall.kind = "signal";
      fall.text = fmt::format("killed by signal {} ({})", exit->code, strsignal(exit->code));
      return fall;
    case RankExit::Kind::kTimedOut:
      fall.kind = "stuck-collective";
      fall.text = "made no progress and was ended";
      return fall;
    case RankExit::Kind::kExited:
      if (exit->code == 0) return {};
      fall.kind = "exception";
      fall.text = exit->last_words.empty() ? fmt::format("ended with exit status {}", exit->code)
                                           : exit->last_words;
      return fall;
    default:
      return {};
  }
}

// Whoever fell for a reason of its own comes before those who lost a peer or waited in vain.
int order_of(const Fall& fall) {
  return fall.kind == "peer-lost" ? 2 : fall.kind == "stuck-collective" ? 1 : 0;
}

// Everyone who fell, whoever did so for a reason of its own first.
std::vector<Fall> falls_of(const Timeline& timeline) {
  std::vector<Fall> falls;
  for (int rank : all_ranks(timeline)) {
    if (auto fall = fall_of(timeline, rank)) falls.push_back(std::move(*fall));
  }
  std::stable_sort(falls.begin(), falls.end(), [](const Fall& a, const Fall& b) {
    return std::pair(order_of(a), a.time_ns) < std::pair(order_of(b), b.time_ns);
  });
  return falls;
}

// Ranks that had to be ended, and said nothing, while another waited for them in vain.
std::vector<int> silent_ranks(const Timeline& timeline) {
  std::vector<int> ranks;
  for (const auto& exit : timeline.run.exits) {
    const bool ended =
        exit.kind == RankExit::Kind::kStopped || exit.kind == RankExit::Kind::kTimedOut;
    if (ended && timeline.error(exit.rank) == nullptr) ranks.push_back(exit.rank);
  }
  return ranks;
}

// Ranks that raise the same error in the same step fall together; a signal hits one.
std::vector<int> fallen_together(const std::vector<Fall>& falls) {
  const Fall& first = falls.front();
  std::vector<int> ranks;
  for (const auto& fall : falls) {
    const bool together =
        first.kind != "signal" && fall.kind == first.kind && fall.step == first.step;
    if (fall.rank == first.rank || together) ranks.push_back(fall.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Prescription cure_for(const Fall& first) {
  if (first.kind == "stuck-collective") {
    return {
        "Look at what this rank does in that step: data that never comes, a loop that does not "
        "end, a collective that "
        "the others do not issue.",
        ""};
  }
  if (first.kind != "signal")
    return {"Mend the error of this rank first; the others only lost their peer.", ""};
  if (first.text.find("(Killed)") != std::string::npos ||
      first.text.find("(Terminated)") != std::string::npos) {
    return {
        "Find out who sent the signal: the system's out-of-memory killer (dmesg), the scheduler, "
        "or a person.",
        ""};
  }
  return {
      "Look at the end of this rank's log (rank-*.log under --out DIR): native code broke there.",
      ""};
}

std::string hang_message(const Fall& waiting, const Finding& finding) {
  return fmt::format("{} made no progress in step {}, while rank {} waited{}: {}.",
                     ranks_of(finding.ranks), *finding.first_step, waiting.rank,
                     waiting.phase.empty() ? "" : " in " + waiting.phase,
                     telling_line(waiting.text));
}

std::string crash_message(const std::vector<Fall>& falls, const Finding& finding) {
  const Fall& first = falls.front();
  const std::string error = telling_line(first.text);
  return fmt::format(
      "{} ended in step {}{}: {}{}{}", ranks_of(finding.ranks), *finding.first_step,
      first.phase.empty() ? "" : " (" + first.phase + ")", error, error.ends_with('.') ? "" : ".",
      finding.ranks.size() < falls.size() ? " The other ranks ended because of it." : "");
}

Verdict check(const Timeline& timeline) {
  const auto falls = falls_of(timeline);
  if (falls.empty()) return std::vector<Finding>{};
  const Fall& first = falls.front();

  Finding finding = finding_of(kRankCrashed);
  finding.first_step = std::max<std::int64_t>(first.step, 1);
  finding.evidence["kind"] = first.kind;
  finding.evidence["error"] = telling_line(first.text);
  finding.evidence["phase"] = first.phase;
  finding.evidence["first_to_fall"] = first.rank;
  for (const auto& fall : falls) finding.evidence["errors"][std::to_string(fall.rank)] = fall.text;

  const auto silent = silent_ranks(timeline);
  const bool hang =
      first.kind == "stuck-collective" && !silent.empty() && timeline.error(first.rank) != nullptr;
  finding.ranks = hang ? silent : fallen_together(falls);
  // Who is silent may itself wait for something that the others never sent.
  if (hang) finding.certainty = Certainty::kLikely;
  finding.message = hang ? hang_message(first, finding) : crash_message(falls, finding);
  finding.prescription = cure_for(first);
  finding.message[0] = 'R';  // "Rank 1 ...", "Ranks 0 and 1 ..."
  return std::vector{finding};
}

}  // namespace

const Rule kRankCrashed = {"DDP504", "rank-crashed", Severity::kError,
                           "a rank ended with an exception or a signal", check};

}  // namespace ddp_doctor
