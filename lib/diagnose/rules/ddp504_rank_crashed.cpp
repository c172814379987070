// SPDX-License-Identifier: BSD-3-Clause
// DDP504: a rank ended with an exception or a signal. The first rank to fail is reported with its
// error, not the peers whose connections it closed.

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rank_failures.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"

namespace ddp_doctor {
namespace {

constexpr char kLeft[] = "left";  // kind of a failure that leaves the others waiting

// Ranks that raise the same error in the same step failed together; a signal ends a single rank.
std::vector<int> failed_together(const std::vector<RankFailure>& failures) {
  const RankFailure& first = failures.front();
  std::vector<int> ranks;
  for (const auto& failure : failures) {
    const bool together =
        first.kind != "signal" && failure.kind == first.kind && failure.step == first.step;
    if (failure.rank == first.rank || together) ranks.push_back(failure.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<Where> raised_at(const Timeline& timeline, int rank) {
  const auto* record = timeline.record(rank);
  const Event* error = timeline.error(rank);
  if (record == nullptr || error == nullptr) return {};
  const std::string what =
      error->kind == "error" ? "raised" : fmt::format("caught {}", error->step);
  for (const auto& site : record->sites) {
    if (site.what == what) return Where{site.file, site.line};
  }
  return {};
}

// What the ranks beside those of the finding did.
enum class Others { kNone, kLostIt, kFailedToo };

Others others_of(const std::vector<RankFailure>& failures, const std::vector<int>& ranks) {
  Others others = Others::kNone;
  for (const auto& failure : failures) {
    if (std::find(ranks.begin(), ranks.end(), failure.rank) != ranks.end()) continue;
    if (is_own_failure(failure.kind)) return Others::kFailedToo;
    others = Others::kLostIt;
  }
  return others;
}

Prescription prescription_for(const RankFailure& first, bool all, Others others) {
  if (first.kind != "signal")
    return {all ? "Fix this error: every rank raised it."
            : others == Others::kFailedToo
                ? "Fix this rank's error first."
                : "Fix this rank's error first; the other ranks only lost their connection to it.",
            ""};
  if (first.text.find("(Killed)") != std::string::npos ||
      first.text.find("(Terminated)") != std::string::npos) {
    return {
        "Find out who sent the signal: the system's out-of-memory killer (dmesg), the scheduler, "
        "or a person.",
        ""};
  }
  return {"Read the end of this rank's log (rank-*.log under --out DIR): native code crashed.", ""};
}

// It caught the error, left the step, and waits elsewhere than the others: in a barrier at the end,
// say.
bool went_on(const Timeline& timeline, const RankFailure& failure) {
  const Event* error = timeline.error(failure.rank);
  if (error == nullptr || error->kind != "caught") return false;
  const auto* own = waits_in(timeline.record(failure.rank)->calls);
  return own != nullptr &&
         std::any_of(timeline.ranks().begin(), timeline.ranks().end(), [&](int rank) {
           const auto* other = waits_in(timeline.record(rank)->calls);
           return other != nullptr && signature(*other) != signature(*own);
         });
}

// It ended with a status of its own choice, without an exception, while others wait.
bool left(const Timeline& timeline, const RankFailure& failure) {
  const auto& exits = timeline.run.exits;
  const bool by_choice = std::any_of(exits.begin(), exits.end(), [&](const RankExit& exit) {
    return exit.rank == failure.rank && exit.kind == RankExit::Kind::kExited &&
           is_own_failure(failure.kind) && exit.last_words.find("Traceback") == std::string::npos;
  });
  return by_choice && timeline.error(failure.rank) == nullptr && !silent_ranks(timeline).empty();
}

std::string crash_message(const std::vector<RankFailure>& failures, const Finding& finding) {
  const RankFailure& first = failures.front();
  const std::string error = telling_line(first.text);
  if (finding.evidence.contains("caught"))
    return fmt::format(
        "{} caught an exception in step {} and went on without the others, which wait for it: {}{}",
        ranks_of(finding.ranks), *finding.first_step, error, error.ends_with('.') ? "" : ".");
  return fmt::format("{} ended in step {}{}: {}{}{}", ranks_of(finding.ranks), *finding.first_step,
                     first.phase.empty() ? "" : " (" + first.phase + ")", error,
                     error.ends_with('.') ? "" : ".",
                     others_of(failures, finding.ranks) == Others::kLostIt
                         ? " The other ranks failed because of it."
                         : "");
}

Verdict check_rank_crashed(const Timeline& timeline) {
  const auto failures = rank_failures(timeline);
  // If ranks only timed out, no rank crashed: see DDP501 to DDP505.
  if (failures.empty() || failures.front().kind == "stuck-collective")
    return std::vector<Finding>{};
  const RankFailure& first = failures.front();

  Finding finding = finding_of(kRankCrashed);
  finding.first_step = std::max<std::int64_t>(first.step, 1);
  finding.evidence["kind"] = first.kind;
  const bool continued = went_on(timeline, first);
  if (continued || left(timeline, first)) finding.evidence["kind"] = kLeft;
  if (continued) {
    finding.certainty = Certainty::kLikely;
    finding.evidence["caught"] = true;
  }
  finding.evidence["error"] = telling_line(first.text);
  finding.evidence["phase"] = first.phase;
  finding.evidence["first_failed_rank"] = first.rank;
  for (const auto& failure : failures)
    finding.evidence["errors"][std::to_string(failure.rank)] = failure.text;

  finding.ranks = failed_together(failures);
  finding.message = crash_message(failures, finding);
  finding.where = raised_at(timeline, first.rank);
  finding.prescription = prescription_for(first, finding.ranks.size() == timeline.ranks().size(),
                                          others_of(failures, finding.ranks));
  if (continued)
    finding.prescription = {
        "Fix this error, and let it end the job: raise it again, or exit with a status that is not "
        "0, before any further collective.",
        ""};
  finding.message[0] = 'R';  // "Rank 1 ...", "Ranks 0 and 1 ..."
  return std::vector{finding};
}

}  // namespace

const Rule kRankCrashed = {.code = "DDP504",
                           .name = "rank-crashed",
                           .severity = Severity::kError,
                           .headline = "a rank ended with an exception or a signal",
                           .check = check_rank_crashed,
                           .scope = Scope::kJob,
                           .on_mesh = OnMesh::kHolds,
                           .rank_failed = true,
                           .explains = {{&kStalledRank, "", kLeft},
                                        {&kCollectiveMismatch, "", kLeft},
                                        {&kUnevenInputs, "", kLeft},
                                        {&kRankLocalCollective, "", kLeft}}};

}  // namespace ddp_doctor
