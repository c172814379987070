#include "lib/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

std::string reason_of(const Report& report, Health health) {
  const auto& run = report.runs.front();
  if (health == Health::kSick) {
    const auto& first = report.findings.front();
    const std::size_t more = report.findings.size() - 1;
    return fmt::format("{} {}{}", first.rule, first.name,
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }
  if (health == Health::kInconclusive) {
    if (run.completed && run.steps_table.empty() && !run.notes.empty())
      return "nothing could be examined, see the notes";
    if (run.completed || run.steps_table.empty()) return "no step was completed by every rank";
    return fmt::format("the run was stopped in step {}, before its end", run.outcome_step);
  }
  if (report.world_size == 1) return "one rank, nothing to compare across ranks";
  return fmt::format("{} x {}{}", count_of(static_cast<std::size_t>(report.world_size), "rank"),
                     count_of(run.steps_table.size(), "step"),
                     report.bit_identical() ? ", replicas bit-identical" : "");
}

}  // namespace

std::vector<Judged> judged_runs(const Report& report) {
  std::vector<Judged> judged = {{report.runs.front(), report.findings}};
  if (report.purpose != Purpose::kCompare) return judged;
  for (std::size_t i = 1; i < report.runs.size(); ++i)
    judged.push_back({report.runs[i], report.runs[i].diagnosis.findings});
  return judged;
}

std::string verdict_of(const Report& report) {
  if (report.purpose == Purpose::kCompare) {
    std::string verdicts;
    for (const auto& run : report.runs)
      verdicts +=
          fmt::format("{}{}: {}", verdicts.empty() ? "" : "; ", run.label, name_of(run.health()));
    return verdicts;
  }
  const Health health = report.health();
  return fmt::format("{}: {}", name_of(health), reason_of(report, health));
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
