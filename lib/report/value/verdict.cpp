// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

// "DDP101 wrapper-bypassed and 1 more": advice is counted only where it comes first.
std::string names_of(const std::vector<Finding>& findings) {
  const auto& first = findings.front();
  const auto more = std::count_if(findings.begin() + 1, findings.end(), [&](const Finding& other) {
    return first.severity == Severity::kAdvice || other.severity != Severity::kAdvice;
  });
  return fmt::format("{} {}{}", first.rule, first.name,
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// ", replicas bit-identical": of what was compared.
std::string what_agrees(const Report& report) {
  const auto& coverage = report.runs.front().coverage;
  const char* identical = report.bit_identical() ? " and bit-identical" : "";
  if (coverage.shards == 0 && coverage.left_out == 0)
    return report.bit_identical() ? ", replicas bit-identical" : "";
  std::string text;
  if (coverage.compared > 0)
    text += fmt::format(", {} compared{}", count_of(coverage.compared, "parameter"), identical);
  if (coverage.shards > 0)
    text += fmt::format(", {} sharded and trained", count_of(coverage.shards, "parameter"));
  if (coverage.left_out > 0)
    text += fmt::format(", {} not compared", count_of(coverage.left_out, "tensor"));
  return text;
}

std::string reason_of(const Report& report, Health health) {
  const auto& run = report.runs.front();
  if (health == Health::kSick) {
    const bool unknown = run.parity && !run.parity->inconclusive.empty();
    return names_of(report.findings) + (unknown ? "; not compared with one process" : "");
  }
  if (run.parity && (health == Health::kHealthy || run.conclusive()))
    return summary_of(*run.parity, report.world_size);
  if (health == Health::kInconclusive) {
    if (report.nothing_compared && run.conclusive())
      return "one rank, nothing to compare across ranks: give the gate two or more";
    if (run.completed && !run.whole() && !run.steps_table.empty()) {
      return fmt::format("nothing found on {} of {}, and the others are not in this report",
                         ranks_of(run.ranks.list()), report.world_size);
    }
    if (!run.coverage.nothing.empty()) return run.coverage.nothing;
    if (!comparable(run.roots)) return "ranks of different models cannot be compared";
    if (run.completed && run.steps_table.empty() && !run.notes.empty()) {
      const auto sharded = std::find_if(run.notes.begin(), run.notes.end(), [](const auto& note) {
        return note.starts_with("not compared");
      });
      const auto& note = sharded == run.notes.end() ? run.notes.front() : *sharded;
      return "nothing could be examined: " + note.substr(0, note.find(". "));
    }
    if (run.info.ending == Ending::kInterrupted && !run.completed) {
      return fmt::format("interrupted after {}, with nothing found until then",
                         count_of(static_cast<std::size_t>(run.outcome_step - 1), "step"));
    }
    if (run.completed || run.steps_table.empty()) return "no step was completed by every rank";
    return fmt::format("the run was stopped in step {}, before its end", run.outcome_step);
  }
  if (report.world_size == 1) return "one rank, nothing to compare across ranks";
  return fmt::format("{} x {}{}", count_of(static_cast<std::size_t>(report.world_size), "rank"),
                     count_of(run.steps_table.size(), "step"), what_agrees(report));
}

}  // namespace

std::vector<Judged> judged_runs(const Report& report) {
  std::vector<Judged> judged = {{report.runs.front(), report.findings}};
  if (report.purpose != Purpose::kCompare) return judged;
  for (std::size_t i = 1; i < report.runs.size(); ++i)
    judged.push_back({report.runs[i], report.runs[i].diagnosis.findings});
  return judged;
}

std::string verdict_of(const Report& report, std::optional<Severity> fail_on) {
  if (report.purpose == Purpose::kCompare) {
    std::string verdicts;
    for (const auto& run : report.runs)
      verdicts +=
          fmt::format("{}{}: {}", verdicts.empty() ? "" : "; ", run.label, name_of(run.health()));
    return verdicts;
  }
  const Health health = report.health();
  if (health == Health::kHealthy && fail_on == Severity::kAdvice && !report.findings.empty())
    return fmt::format("healthy, but --fail-on advice: {}", names_of(report.findings));
  return fmt::format("{}: {}", name_of(health), reason_of(report, health));
}

std::string torch_of(const Report& report) {
  const auto& environment = report.runs.front().environment;
  const auto version = environment.find("torch_version");
  return fmt::format("{} {}", environment.contains("python") ? "torch" : "LibTorch",
                     version == environment.end() ? "of unknown version" : version->second);
}

std::vector<std::string> remarks_on_suppressions(const Report& report) {
  std::vector<std::string> remarks;
  for (const auto& given : report.unused_suppressions)
    remarks.push_back("suppression matched nothing, remove it: " + given);
  for (const auto& [given, left] : report.partial_suppressions)
    remarks.push_back(fmt::format(
        "suppression covers only part of a finding, so it has no effect ({} is left): {}", left,
        given));
  return remarks;
}

std::string message_with_consequences(const Finding& finding) {
  std::string text = finding.message;
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const auto& consequence : finding.consequences) {
    text += fmt::format("{} {} {}",
                        &consequence == &finding.consequences.front() ? " It leads to" : ",",
                        consequence.rule, consequence.name);
  }
  return finding.consequences.empty() ? text : text + ".";
}

}  // namespace ddp_doctor
