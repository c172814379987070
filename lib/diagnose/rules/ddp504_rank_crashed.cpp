// DDP504: a rank ended with an exception or a signal. The first to fall is named with its own
// error, not the peers who then found their connections closed.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <regex>

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

// What an error text says about its cause; see reference texts in docs/rules/DDP201.md and
// DDP206.md.
std::string kind_of(const std::string& text) {
  if (text.find("Expected to have finished reduction") != std::string::npos) {
    return text.find("static_graph set to True") != std::string::npos ? "static-graph"
                                                                      : "unfinished-reduction";
  }
  if (text.find("training graph has changed") != std::string::npos) return "static-graph";
  if (text.find("mark a variable ready only once") != std::string::npos) return "marked-twice";
  static const std::regex stuck("Timed out waiting|Application timeout|wait timeout",
                                std::regex::icase);
  if (std::regex_search(text, stuck)) return "stuck-collective";
  static const std::regex peer(
      "Connection closed by peer|Connection reset by peer|Connection refused|Socket closed|"
      "Broken pipe|connectFullMesh",
      std::regex::icase);
  if (std::regex_search(text, peer)) return "peer-lost";
  return "exception";
}

std::optional<Fall> fall_of(const Timeline& timeline, int rank) {
  const auto& exits = timeline.run.exits;
  const auto exit =
      std::find_if(exits.begin(), exits.end(), [&](const RankExit& e) { return e.rank == rank; });
  if (const Event* error = timeline.error(rank)) {
    return Fall{rank, error->time_ns, error->step, error->phase, error->text, kind_of(error->text)};
  }
  if (exit == exits.end()) return {};
  const auto* record = timeline.record(rank);
  const std::int64_t step =
      record == nullptr || record->steps.empty() ? 1 : record->steps.back().step + 1;
  switch (exit->kind) {
    case RankExit::Kind::kSignaled:
      return Fall{rank,
                  exit->time_ns,
                  step,
                  "",
                  fmt::format("killed by signal {} ({})", exit->code, strsignal(exit->code)),
                  "signal"};
    case RankExit::Kind::kTimedOut:
      return Fall{
          rank, exit->time_ns, step, "", "made no progress and was ended", "stuck-collective"};
    case RankExit::Kind::kExited:
      if (exit->code == 0) return {};
      return Fall{rank,
                  exit->time_ns,
                  step,
                  "",
                  exit->last_words.empty() ? fmt::format("ended with exit status {}", exit->code)
                                           : exit->last_words,
                  "exception"};
    default:
      return {};
  }
}

// Whoever fell for a reason of its own comes before those who lost a peer or waited in vain.
int order_of(const Fall& fall) {
  return fall.kind == "peer-lost" ? 2 : fall.kind == "stuck-collective" ? 1 : 0;
}

// The line of an error that says what happened: TorchScript and Python put it last, after the
// trace.
std::string telling_line(const std::string& text) {
  const bool trace_first =
      text.starts_with("The following operation failed") || text.starts_with("Traceback");
  std::size_t begin = 0;
  std::size_t end = text.find('\n');
  if (trace_first) {
    end = text.find_last_not_of(" \n") + 1;
    begin = text.rfind('\n', end - 1) + 1;
  }
  std::string line = text.substr(begin, end == std::string::npos ? end : end - begin);
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

Verdict check(const Timeline& timeline) {
  std::vector<Fall> falls;
  for (int rank : all_ranks(timeline)) {
    if (auto fall = fall_of(timeline, rank)) falls.push_back(std::move(*fall));
  }
  if (falls.empty()) return std::vector<Finding>{};
  std::stable_sort(falls.begin(), falls.end(), [](const Fall& a, const Fall& b) {
    return std::pair(order_of(a), a.time_ns) < std::pair(order_of(b), b.time_ns);
  });
  const Fall& first = falls.front();

  Finding finding = finding_of(kRankCrashed);
  for (const auto& fall : falls) {
    // Ranks that raise the same error in the same step fall together; a signal hits one.
    if (fall.rank == first.rank ||
        (first.kind != "signal" && fall.kind == first.kind && fall.step == first.step)) {
      finding.ranks.push_back(fall.rank);
    }
    finding.evidence["errors"][std::to_string(fall.rank)] = fall.text;
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.first_step = std::max<std::int64_t>(first.step, 1);
  finding.evidence["kind"] = first.kind;
  finding.evidence["error"] = telling_line(first.text);
  finding.evidence["phase"] = first.phase;
  finding.evidence["first_to_fall"] = first.rank;
  const std::string others = finding.ranks.size() < falls.size()
                                 ? fmt::format(" The other ranks ended because of it.")
                                 : std::string();
  finding.message = fmt::format(
      "{} ended in step {}{}: {}{}{}", ranks_of(finding.ranks), *finding.first_step,
      first.phase.empty() ? "" : fmt::format(" ({})", first.phase), telling_line(first.text),
      telling_line(first.text).ends_with('.') ? "" : ".", others);
  finding.message[0] = 'R';
  finding.prescription = {
      first.kind == "signal"
          ? "Find out who sent the signal: the system's out-of-memory killer (dmesg), the "
            "scheduler, or a person."
          : "Mend the error of this rank first; the others only lost their peer.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kRankCrashed = {"DDP504", "rank-crashed", Severity::kError,
                           "a rank ended with an exception or a signal", check};

}  // namespace ddp_doctor
