// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/record/worker.h"
#include "lib/report/compare/change.h"
#include "lib/report/compare/comparison.h"
#include "lib/report/value/cells.h"

namespace ddp_doctor {
namespace {

bool found(const RunReport& run, const std::string& rule, Severity mildest) {
  return find_finding(run.diagnosis.findings, [&](const Finding& finding) {
           return finding.rule == rule && finding.severity >= mildest;
         }) != nullptr;
}

// A proof looks at all that the first run did: one that stops early may have trained nothing ("is
// already trained"), and what shows late would be missed.
bool as_long(const RunReport& run, const RunReport& first) {
  return !first.completed || run.steps_seen() >= first.steps_seen();
}

// What was a consequence of it is now a root cause of its own.
bool leaves_consequences(const RunReport& run, const Finding& finding) {
  const auto consequences = flattened(finding.consequences);
  return std::ranges::any_of(run.diagnosis.findings, [&](const Finding& root) {
    return root.severity >= Severity::kWarning &&
           std::ranges::any_of(consequences, [&](const Finding& consequence) {
             return consequence.rule == root.rule;
           });
  });
}

// The run finished without the finding, and without one that the first run does not have.
bool cures(const RunReport& run, const RunReport& first, const Finding& finding) {
  if (!run.conclusive() || !as_long(run, first)) return false;
  if (found(run, finding.rule, std::min(finding.severity, Severity::kWarning))) return false;
  if (leaves_consequences(run, finding)) return false;
  return find_finding(run.diagnosis.findings, [&](const Finding& other) {
           return other.severity >= Severity::kWarning &&
                  !found(first, other.rule, Severity::kWarning);
         }) == nullptr;
}

std::string price_of(const RunReport& run) {
  return fmt::format("{} ms per step (median of {}, {} to {})",
                     cells::milliseconds(run.step_time->median_ms, *run.step_time),
                     run.step_time->steps,
                     cells::milliseconds(run.step_time->low_ms, *run.step_time),
                     cells::milliseconds(run.step_time->high_ms, *run.step_time));
}

// Timings whose ranges overlap, or that have too few steps, cannot be told apart.
bool overlap(const StepTime& a, const StepTime& b) {
  constexpr std::size_t kMinSteps = 3;
  return (a.low_ms <= b.high_ms && b.low_ms <= a.high_ms) || std::min(a.steps, b.steps) < kMinSteps;
}

bool repeated(const RunReport& run) { return !run.again_ms.empty(); }

// Whether `a` is measurably cheaper, where both fix the finding.
bool cheaper(const RunReport& a, const RunReport& b) {
  if (!a.step_time || !b.step_time) return a.step_time.has_value() > b.step_time.has_value();
  if (!repeated(a) || !repeated(b))
    return !overlap(*a.step_time, *b.step_time) && a.step_time->median_ms < b.step_time->median_ms;
  const auto cost = cost_between(a, b);
  return cost && cost->measurable() && cost->ratio < 1.0;
}

// The step time of the chosen fix against those of the others.
std::string comparison(const RunReport& best, const std::vector<const RunReport*>& others,
                       Purpose purpose) {
  std::string text = ": " + price_of(best);
  if (others.empty()) return text;
  bool cheapest = true;
  for (const auto* other : others) {
    text += fmt::format(", {} {}", other->label, price_of(*other));
    cheapest = cheapest && cheaper(best, *other);
  }
  if (cheapest) return ". Its steps are faster here" + text;
  const bool more = purpose == Purpose::kFix && !repeated(best);
  return fmt::format(". The step times of the fixes do not differ measurably here{}{}",
                     more ? " (increase --repeats)" : "", text);
}

// A parameter that is unused in one run may be used in another.
std::string used_elsewhere(const RunReport& run, const Finding& finding) {
  if (rule_of(finding).names_unused != NamesUnused::kEverywhere) return {};
  for (const auto& row : run.steps_table) {
    for (std::size_t rank = 0; rank < row.unused.size(); ++rank) {
      for (const auto& parameter : finding.parameters) {
        const auto& unused = row.unused[rank];
        const bool used = parameter.index &&
                          std::find(unused.begin(), unused.end(), *parameter.index) == unused.end();
        if (used)
          return fmt::format(". In that run rank {} uses {} in step {}: do not remove it",
                             run.rank_at(rank), parameter.name, row.step);
      }
    }
  }
  return {};
}

// Nobody can observe what static_graph requires of later steps.
std::string assumption_of(const RunReport& run) {
  if (run.info.strategy != "ddp-static-graph") return {};
  return fmt::format(
      ". This assumes that every step uses the same parameters, without reentrant checkpointing, "
      "as the {} seen did",
      count_of(run.steps_table.size(), "step"));
}

std::string side_effects(const RunReport& run, const RunReport& first) {
  std::string text;
  for (const auto& finding : run.diagnosis.findings) {
    if (finding.severity == Severity::kAdvice && !found(first, finding.rule, Severity::kAdvice))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", finding.rule, finding.name);
  }
  return text.empty() ? text : ". It adds: " + text;
}

std::string cost_beside(const RunReport& run) {
  if (!repeated(run) || !run.cost || run.cost->base != 0) return {};
  return "; " + describe(*run.cost, "the program as it is");
}

std::string why_not(const RunReport& run, const RunReport& first) {
  for (const auto& note : run.info.notes) {
    if (note.starts_with("--fix-budget"))
      return fmt::format("whether {} fixes it is not known: {}", run.info.strategy, note);
  }
  std::string text = run.info.strategy + " does not fix it here: ";
  if (run.changes.empty() && !run.unapplied.empty()) return text + run.unapplied.front();
  text += run.outcome;
  if (run.completed && !as_long(run, first))
    text += fmt::format("; it has only {}, and the first run had {}",
                        count_of(run.steps_table.size(), "examined step"),
                        count_of(first.steps_table.size(), "examined step"));
  for (const auto& reason : run.unapplied) text += "; " + reason;
  return text;
}

struct Tried {
  std::vector<const RunReport*> runs;  // the best first
  bool cured = false;
};

Tried try_out(const Report& report, const Finding& finding,
              const std::vector<std::string>& strategies) {
  Tried tried;
  const RunReport& first = report.runs.front();
  for (const auto& strategy : strategies) {
    for (const auto& run : report.runs) {
      if (&run != &first && run.info.strategy == strategy &&
          run.info.ending != Ending::kInterrupted)
        tried.runs.push_back(&run);
    }
  }
  const auto cure = [&](const RunReport* run) { return cures(*run, first, finding); };
  std::stable_partition(tried.runs.begin(), tried.runs.end(), cure);
  for (auto run = tried.runs.begin(); run != tried.runs.end() && cure(*run); ++run) {
    if (cheaper(**run, *tried.runs.front())) std::rotate(tried.runs.begin(), run, run + 1);
  }
  tried.cured = !tried.runs.empty() && cures(*tried.runs.front(), first, finding);
  return tried;
}

std::vector<std::string> first_choice(const Prescription& prescription) {
  std::vector<std::string> strategies = prescription.alternatives;
  if (!prescription.strategy.empty()) strategies.insert(strategies.begin(), prescription.strategy);
  return strategies;
}

void prove(Report& report, Finding& finding) {
  const RunReport& first = report.runs.front();
  Tried tried = try_out(report, finding, first_choice(finding.prescription));
  if (!tried.cured) {
    Tried fallbacks = try_out(report, finding, finding.prescription.fallbacks);
    if (fallbacks.cured || tried.runs.empty()) tried = std::move(fallbacks);
  }
  if (tried.runs.empty()) return;
  const RunReport& best = *tried.runs.front();
  Proof proof{static_cast<int>(&best - report.runs.data()), best.info.strategy, tried.cured, ""};
  if (!proof.cured) {
    proof.text = why_not(best, first);
  } else {
    // The other one stays an alternative: proofs may be attached again, to a filtered report.
    auto& prescription = finding.prescription;
    if (prescription.strategy != best.info.strategy) {
      std::erase(prescription.alternatives, best.info.strategy);
      std::erase(prescription.fallbacks, best.info.strategy);
      prescription.alternatives.push_back(std::exchange(prescription.strategy, best.info.strategy));
    }
    std::vector<const RunReport*> others;
    for (const auto* run : tried.runs) {
      if (run != &best && cures(*run, first, finding) && run->step_time && best.step_time)
        others.push_back(run);
    }
    proof.text = fmt::format("{} ran {} without {}", best.info.strategy,
                             count_of(best.steps_table.size(), "step"),
                             best.clean() ? "findings" : "this finding");
    const auto drifts = [](const StepRow& row) { return !row.drift || *row.drift != 0.0; };
    if (std::none_of(best.steps_table.begin(), best.steps_table.end(), drifts))
      proof.text += ", weight drift 0";
    if (best.step_time) proof.text += comparison(best, others, report.purpose);
    proof.text += used_elsewhere(best, finding);
    proof.text += cost_beside(best) + side_effects(best, first) + assumption_of(best);
  }
  proof.text += ".";
  finding.proof = std::move(proof);
}

// Names a finding among those of a run.
std::string place_key(const Finding& finding) {
  return finding.where
             ? fmt::format("{} {}:{}", finding.rule, finding.where->file, finding.where->line)
             : finding.rule;
}

const RunReport* tried_for(const Report& report, const Finding& finding) {
  const auto found =
      std::find_if(report.runs.begin(), report.runs.end(), [&](const RunReport& run) {
        return run.info.tried && run.info.tried->finding == place_key(finding);
      });
  return found == report.runs.end() ? nullptr : &*found;
}

void attach_change(const Report& report, Finding& finding) {
  const RunReport& first = report.runs.front();
  const RunReport* tried = tried_for(report, finding);
  if (tried != nullptr && cures(*tried, first, finding)) {
    finding.change = tried->info.tried->change;
    finding.change->text = fmt::format("a copy of the program with this change ran {} without {}",
                                       count_of(tried->steps_table.size(), "step"),
                                       tried->clean() ? "findings" : "this finding");
    if (!finding.proof || !finding.proof->cured)
      finding.proof = Proof{static_cast<int>(tried - report.runs.data()), kAsChanged, true,
                            finding.change->text + '.'};
    return;
  }
  auto change = change_for(finding, first);
  if (!change) return;  // where a report is read again, the user's files may be missing
  const bool possible = !change->after.empty();
  change->before.clear();
  change->after.clear();
  if (tried != nullptr) {
    change->text +=
        fmt::format("; as `run --fix` inserted it, that did not help: {}", why_not(*tried, first));
  } else if (possible && report.purpose != Purpose::kFix) {
    change->text += "; `run --fix` tries it on a copy of the program, and shows it as a diff";
  }
  finding.change = std::move(change);
}

// Several may be joined by "+".
bool is_possible(const std::string& strategy, const std::vector<std::string>& possible) {
  if (strategy.starts_with(kAllReduceDimension)) return true;
  std::istringstream names(strategy);
  for (std::string name; std::getline(names, name, '+');) {
    if (std::find(possible.begin(), possible.end(), name) == possible.end()) return false;
  }
  return true;
}

}  // namespace

void attach_proofs(Report& report) {
  for (auto& finding : report.findings) {
    prove(report, finding);
    attach_change(report, finding);
  }
}

std::vector<TriedChange> changes_to_try(const Report& report) {
  std::vector<TriedChange> changes;
  for (const auto& finding : report.findings) {
    const auto change = change_for(finding, report.runs.front());
    if (!change || change->after.empty()) continue;
    const bool known = std::any_of(changes.begin(), changes.end(), [&](const TriedChange& other) {
      return other.finding == place_key(finding);
    });
    if (!known) changes.push_back({place_key(finding), *change});
  }
  return changes;
}

std::vector<std::string> prescribed(const Report& report,
                                    const std::vector<std::string>& possible) {
  std::vector<std::string> strategies;
  const auto untried = [&](const std::vector<std::string>& wanted) {
    bool any = false;
    for (const auto& strategy : wanted) {
      const bool run = std::any_of(report.runs.begin(), report.runs.end(), [&](const auto& other) {
        return other.info.strategy == strategy;
      });
      if (run || !is_possible(strategy, possible) || !fits(strategy, report.runs.front())) continue;
      any = true;
      if (std::find(strategies.begin(), strategies.end(), strategy) == strategies.end())
        strategies.push_back(strategy);
    }
    return any;
  };
  for (const auto& finding : report.findings) {
    if (finding.proof && finding.proof->cured) continue;
    if (!untried(first_choice(finding.prescription))) untried(finding.prescription.fallbacks);
  }
  return strategies;
}

nlohmann::json reductions(const Report& report) {
  auto all = nlohmann::json::object();
  for (const auto& finding : report.findings) {
    const auto told = finding.evidence.find("reduction");
    if (told == finding.evidence.end()) continue;
    auto& reduction = all[finding.prescription.strategy] = *told;
    reduction["parameters"] = nlohmann::json::array();
    for (const auto& parameter : finding.parameters)
      reduction["parameters"].push_back(name_in_model(parameter.name));
  }
  return all;
}

std::string combined(const Report& report) {
  std::vector<std::string> strategies;
  for (const auto& finding : report.findings) {
    if (finding.severity < Severity::kWarning || !finding.proof || !finding.proof->cured) continue;
    const auto& strategy = finding.proof->strategy;
    if (report.runs[static_cast<std::size_t>(finding.proof->run)].clean()) return {};
    if (std::find(strategies.begin(), strategies.end(), strategy) == strategies.end())
      strategies.push_back(strategy);
  }
  if (strategies.size() < 2) return {};
  std::string joined;
  for (const auto& strategy : strategies) joined += (joined.empty() ? "" : "+") + strategy;
  return joined;
}

}  // namespace ddp_doctor
