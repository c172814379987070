// SPDX-License-Identifier: BSD-3-Clause
// DDP501: a rank makes no progress while others wait for it.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rank_failures.h"
#include "lib/diagnose/rule.h"
#include "lib/explain/wording/errors.h"

namespace ddp_doctor {
namespace {

const RankExit* exit_of(const Timeline& timeline, int rank) {
  const auto& exits = timeline.run.exits;
  const auto found =
      std::find_if(exits.begin(), exits.end(), [&](const auto& exit) { return exit.rank == rank; });
  return found == exits.end() ? nullptr : &*found;
}

Prescription advice() {
  return {
      "Check what this rank does in that step: it may be waiting for data, for a lock or in a "
      "collective that the other ranks do not issue, or be in an endless loop.",
      ""};
}

// What the rank was doing, as text.
std::string doing(const RankExit* exit) {
  if (exit == nullptr || exit->phase.empty()) return "";
  if (exit->phase == "batch") return " (between steps: loading data, logging, or other code)";
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

// Ranks without a record and without an exit on this machine.
std::vector<int> absent_ranks(const Timeline& timeline) {
  std::vector<int> absent;
  for (int rank = 0; rank < timeline.run.world_size; ++rank) {
    if (timeline.record(rank) == nullptr && exit_of(timeline, rank) == nullptr)
      absent.push_back(rank);
  }
  return absent;
}

// Some ranks ran on other machines, and the ranks that were terminated here waited for them.
std::optional<Finding> by_absence(const Timeline& timeline) {
  const auto absent = absent_ranks(timeline);
  const auto silent = silent_ranks(timeline);
  if (absent.empty() || silent.empty()) return {};
  Finding finding = finding_of(kStalledRank);
  std::string waiting;
  for (int rank : silent) {
    const auto* record = timeline.record(rank);
    const LoggedCall* call = record == nullptr ? nullptr : waits_in(record->calls);
    if (call == nullptr) return {};
    waiting +=
        fmt::format("{}rank {} waits in {}", waiting.empty() ? "" : ", ", rank, name_of(*call));
    finding.first_step = std::max(finding.first_step.value_or(1), call->step);
    if (!call->file.empty() && !finding.where) finding.where = Where{call->file, call->line};
  }
  finding.ranks = absent;
  finding.certainty = Certainty::kLikely;
  finding.evidence["kind"] = "hang";
  finding.evidence["ran_elsewhere"] = true;
  finding.message = fmt::format(
      "{} left no record on this machine and stopped responding in step {}, on another machine, it "
      "seems: here, {}.",
      ranks_of(absent), *finding.first_step, waiting);
  finding.prescription = {
      "Check the other machines and the network between them. `ddp-doctor report` merges the run "
      "folders (--out DIR) of all machines and shows where each rank was.",
      ""};
  return with_stacks(timeline, std::move(finding));
}

// Every rank entered the same collective, and none returned: the connection between them failed.
std::optional<Finding> by_transport(const Timeline& timeline) {
  const auto ranks = timeline.ranks();
  if (ranks.size() < 2 || silent_ranks(timeline).empty()) return {};
  const LoggedCall* common = nullptr;
  for (int rank : ranks) {
    const auto* record = timeline.record(rank);
    const LoggedCall* call = record == nullptr ? nullptr : waits_in(record->calls);
    if (call == nullptr || call->position == 0) return {};
    if (common == nullptr) common = call;
    if (call->group != common->group || call->position != common->position ||
        signature(*call) != signature(*common))
      return {};
  }
  Finding finding = finding_of(kStalledRank);
  finding.ranks = ranks;
  finding.first_step = std::max<std::int64_t>(common->step, 1);
  finding.certainty = Certainty::kLikely;
  finding.evidence["kind"] = "hang";
  if (!common->file.empty()) finding.where = Where{common->file, common->line};
  finding.message = fmt::format(
      "{} all entered {} in step {}, and none returned: probably the connection between them "
      "failed.",
      ranks_of(ranks), name_of(*common), *finding.first_step);
  finding.prescription = {
      "Check the network between the ranks (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, firewalls).",
      ""};
  return with_stacks(timeline, std::move(finding));
}

// Without call logs: ranks that were terminated without an error while another rank timed out.
std::optional<Finding> by_silence(const Timeline& timeline) {
  const auto failures = rank_failures(timeline);
  if (failures.empty() || failures.front().kind != "stuck-collective") return {};
  // A rank whose own error is the timeout, if there is one.
  const auto waiting = std::find_if(
      failures.begin(), failures.end(),
      [&](const RankFailure& failure) { return timeline.error(failure.rank) != nullptr; });
  const RankFailure& first = waiting == failures.end() ? failures.front() : *waiting;
  const auto silent = silent_ranks(timeline);
  Finding finding = finding_of(kStalledRank);
  finding.first_step = std::max<std::int64_t>(first.step, 1);
  // A silent rank may itself be waiting for something that the others never sent.
  finding.certainty = Certainty::kLikely;
  finding.evidence["kind"] = "hang";
  const bool blamed = !silent.empty() && waiting != failures.end();
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

Verdict check_stalled_rank(const Timeline& timeline) {
  const auto divergence = divergence_of(timeline);
  std::optional<Finding> finding;
  if (!divergence) {
    finding = by_absence(timeline);
    if (!finding) finding = by_transport(timeline);
    if (!finding) finding = by_silence(timeline);
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
  if (finding->prescription.text.empty()) finding->prescription = advice();
  return std::vector{*finding};
}

}  // namespace

const Rule kStalledRank = {.code = "DDP501",
                           .name = "stalled-rank",
                           .severity = Severity::kError,
                           .headline = "a rank makes no progress while others wait for it",
                           .check = check_stalled_rank,
                           .scope = Scope::kJob,
                           .on_mesh = OnMesh::kHolds,
                           // A rank that waits forever is terminated, or loses its peer.
                           .explains = {{.rule = &kRankCrashed, .except = "left"}}};

}  // namespace ddp_doctor
