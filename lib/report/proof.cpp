#include "lib/report/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/diagnose/facts.h"
#include "lib/report/report.h"

namespace ddp_doctor {
namespace {

std::string price_of(const RunReport& run) {
  return fmt::format("{:.3g} ms per step (median of {}, {:.3g} to {:.3g})",
                     run.step_time->median_ms, run.step_time->steps, run.step_time->low_ms,
                     run.step_time->high_ms);
}

// Two timings that reach into each other's range are not told apart by so few steps.
bool overlap(const StepTime& a, const StepTime& b) {
  return a.low_ms <= b.high_ms && b.low_ms <= a.high_ms;
}

std::string comparison(const RunReport& best, const std::vector<const RunReport*>& others) {
  std::string text = ": " + price_of(best);
  if (others.empty()) return text;
  bool within_noise = false;
  for (const auto* other : others) {
    text += " against " + other->info.strategy + " " + price_of(*other);
    within_noise = within_noise || overlap(*best.step_time, *other->step_time);
  }
  return fmt::format(
      "; the cheaper here{}{}",
      within_noise ? ", though their ranges overlap (more --steps tell them apart)" : "", text);
}

// An unused parameter that another run shows in use at some step is not dead weight.
std::string used_elsewhere(const RunReport& run, const Finding& finding) {
  if (finding.rule != "DDP201") return {};
  for (const auto& row : run.steps_table) {
    for (std::size_t rank = 0; rank < row.unused.size(); ++rank) {
      for (const auto& parameter : finding.parameters) {
        const auto& unused = row.unused[rank];
        const bool used = parameter.index &&
                          std::find(unused.begin(), unused.end(), *parameter.index) == unused.end();
        if (used)
          return fmt::format("; there rank {} uses {} in step {}, so it is no dead weight", rank,
                             parameter.name, row.step);
      }
    }
  }
  return {};
}

void prove(Report& report, Finding& finding) {
  std::vector<std::string> wanted = finding.prescription.alternatives;
  if (!finding.prescription.strategy.empty())
    wanted.insert(wanted.begin(), finding.prescription.strategy);
  std::vector<const RunReport*> tried;
  for (const auto& run : report.runs) {
    if (&run != &report.runs.front() &&
        std::find(wanted.begin(), wanted.end(), run.info.strategy) != wanted.end())
      tried.push_back(&run);
  }
  if (tried.empty()) return;
  std::stable_sort(tried.begin(), tried.end(), [](const RunReport* a, const RunReport* b) {
    if (a->clean() != b->clean()) return a->clean();
    if (!a->step_time || !b->step_time) return a->step_time.has_value() > b->step_time.has_value();
    return a->step_time->median_ms < b->step_time->median_ms;
  });
  const RunReport& best = *tried.front();
  Proof proof{static_cast<int>(&best - report.runs.data()), best.info.strategy, best.clean(), ""};
  if (!proof.cured) {
    proof.text = fmt::format("{} does not cure it here: {}", best.info.strategy, best.outcome);
  } else {
    // The one not chosen stays an alternative: proofs may be attached again, to a filtered report.
    auto& prescription = finding.prescription;
    if (prescription.strategy != best.info.strategy) {
      std::erase(prescription.alternatives, best.info.strategy);
      prescription.alternatives.push_back(std::exchange(prescription.strategy, best.info.strategy));
    }
    std::vector<const RunReport*> others;
    for (const auto* run : tried) {
      if (run != &best && run->clean() && run->step_time && best.step_time) others.push_back(run);
    }
    proof.text = fmt::format("{} is clean in {}", best.info.strategy,
                             count_of(best.steps_table.size(), "step"));
    const auto drifts = [](const StepRow& row) { return !row.drift || *row.drift != 0.0; };
    if (std::none_of(best.steps_table.begin(), best.steps_table.end(), drifts))
      proof.text += ", drift exactly 0";
    if (best.step_time) proof.text += comparison(best, others);
    proof.text += used_elsewhere(best, finding);
  }
  proof.text += ".";
  finding.proof = std::move(proof);
}

}  // namespace

void attach_proofs(Report& report) {
  for (auto& finding : report.findings) prove(report, finding);
}

}  // namespace ddp_doctor
