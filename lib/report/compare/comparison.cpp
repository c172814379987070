// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/record/worker.h"
#include "lib/report/value/median.h"

namespace ddp_doctor {
namespace {

// Five pairs of runs of the same program all point the same way in one case of 16, six in one
// of 32.
constexpr std::size_t kMinPairs = 6;

// How many of the sorted ratios to drop at either end, so that the others span an interval that
// misses the median in at most 5 % of cases, whatever the distribution of the ratios: the largest k
// with P(Binomial(pairs, 1/2) <= k) <= 2.5 %, the interval of the sign test. None of up to eight
// pairs, one of nine, five of twenty.
std::size_t dropped(std::size_t pairs) {
  double exactly = std::pow(0.5, static_cast<double>(pairs));  // P(Binomial = k)
  double at_most = exactly;
  for (std::size_t k = 0;; ++k) {
    exactly *= static_cast<double>(pairs - k) / static_cast<double>(k + 1);
    at_most += exactly;
    if (at_most > 0.025) return k;
  }
}

std::string arguments_of(const RunReport& run) {
  const auto found = run.info.settings.find("arguments");
  return found == run.info.settings.end() ? std::string() : found->second;
}

// "bug.py"; of a command, its beginning.
std::string file_of(const RunReport& run) {
  const std::string& program = run.info.program;
  if (program.find(' ') == std::string::npos)
    return std::filesystem::path(program).filename().string();
  return "'" + program.substr(0, 24) + (program.size() > 24 ? "...'" : "'");
}

// By what they differ in: the program, its arguments, the strategy.
void label(std::vector<RunReport>& runs) {
  const auto differ = [&](auto text_of) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const RunReport& run) { return text_of(run) != text_of(runs.front()); });
  };
  const bool programs = differ([](const RunReport& run) { return run.info.program; });
  const bool arguments = differ(arguments_of);
  std::map<std::string, int> taken;
  for (auto& run : runs) {
    run.label = programs ? file_of(run) : "";
    const std::string words = arguments ? arguments_of(run) : "";
    if (!words.empty()) run.label += (run.label.empty() ? "" : " ") + words;
    if (run.label.empty()) {
      run.label = run.info.strategy;
    } else if (run.info.is_script || run.info.strategy != kAsIs) {
      run.label += "@" + run.info.strategy;
    }
    if (const int number = ++taken[run.label]; number > 1) run.label += fmt::format(" #{}", number);
  }
}

// Relative to the first that finished: a program that dies in step 1 has no step time.
void measure_costs(std::vector<RunReport>& runs) {
  const auto base = std::find_if(runs.begin(), runs.end(), [](const RunReport& run) {
    return run.completed && run.step_time && !run.parity;
  });
  if (base == runs.end()) return;
  for (auto& run : runs) {
    if (&run == &*base || !run.completed || run.parity) continue;
    run.cost = cost_between(run, *base);
    if (run.cost) run.cost->base = static_cast<int>(base - runs.begin());
  }
}

std::string summary_of(const RunReport& run) {
  std::string text;
  std::size_t more = 0;
  for (const auto& finding : run.diagnosis.findings) {
    if (finding.severity < Severity::kWarning) continue;
    if (!text.empty()) {
      ++more;
      continue;
    }
    text = fmt::format("{} {}{}", finding.rule, finding.name,
                       finding.first_step ? fmt::format(" from step {}", *finding.first_step) : "");
  }
  if (text.empty()) return run.parity ? summary_of(*run.parity, run.info.world_size) : run.outcome;
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

std::string difference_of(const Report& report) {
  // Runs of the same outcome share one entry.
  std::vector<std::pair<std::string, std::string>> by_outcome;  // outcome, labels
  for (const auto& run : report.runs) {
    const std::string outcome = summary_of(run);
    const auto known = std::find_if(by_outcome.begin(), by_outcome.end(),
                                    [&](const auto& entry) { return entry.first == outcome; });
    if (known == by_outcome.end()) {
      by_outcome.emplace_back(outcome, run.label);
    } else {
      known->second += ", " + run.label;
    }
  }
  std::string text;
  for (const auto& [outcome, labels] : by_outcome)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", labels, outcome);
  for (const auto& equality : report.equalities) {
    const auto& other = report.runs[static_cast<std::size_t>(equality.b)];
    if (report.runs.size() == 2) {
      text += "; they are " + describe(equality);
    } else {
      text += fmt::format("; {} and {} are {}", report.runs.front().label, other.label,
                          describe(equality));
    }
  }
  return text + ".";
}

}  // namespace

bool Cost::measurable() const { return pairs >= kMinPairs && (low > 1.0 || high < 1.0); }

std::optional<Cost> cost_between(const RunReport& run, const RunReport& base) {
  if (!run.step_time || !base.step_time) return {};
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(run.again_ms.size(), base.again_ms.size()); ++i) {
    if (run.again_ms[i] && base.again_ms[i]) ratios.push_back(*run.again_ms[i] / *base.again_ms[i]);
  }
  // Without repeats there is one pair.
  if (ratios.empty()) ratios.push_back(run.step_time->median_ms / base.step_time->median_ms);
  std::sort(ratios.begin(), ratios.end());
  const std::size_t out = dropped(ratios.size());
  return Cost{0, median(ratios), ratios[out], ratios[ratios.size() - 1 - out], ratios.size()};
}

void compare_runs(Report& report) {
  label(report.runs);
  measure_costs(report.runs);
  if (report.purpose != Purpose::kCompare) return;
  if (const auto& first = report.runs.front(); first.fingerprint) {
    const Fingerprint examined = first.fingerprint();
    for (std::size_t i = 1; i < report.runs.size(); ++i) {
      const auto& run = report.runs[i];
      if (!run.fingerprint || run.parity) continue;  // dropout is off
      report.equalities.push_back(
          {0, static_cast<int>(i), Fingerprint::compare(examined, run.fingerprint())});
    }
  }
  report.difference = difference_of(report);
}

std::string describe(const Cost& cost, const std::string& base) {
  const std::string ratio = fmt::format("{:.2f} times the step time of {}", cost.ratio, base);
  if (cost.pairs < kMinPairs)
    return fmt::format("{} (in {} of runs: too few to tell from noise; use --repeats {})", ratio,
                       count_of(cost.pairs, "pair"), kMinPairs);
  const std::string spread =
      fmt::format("({:.2f} to {:.2f} in {} pairs of runs)", cost.low, cost.high, cost.pairs);
  return cost.measurable()
             ? fmt::format("{} {}", ratio, spread)
             : fmt::format("no measurable difference from the step time of {}: {:.2f} {}", base,
                           cost.ratio, spread);
}

std::string describe(const Equality& equality) {
  const auto& seen = equality.seen;
  if (seen.parameters == 0) return "not comparable: they have no parameter in common";
  if (!seen.parting)
    return fmt::format("equal bit for bit in {} and {}", count_of(seen.steps, "step"),
                       count_of(seen.parameters, "parameter"));
  const auto& at = *seen.parting;
  const std::string what =
      fmt::format("the {} of {} on rank {}", at.stage == Stage::kGradient ? "gradient" : "weight",
                  at.parameter, at.rank);
  return at.step == 0 ? fmt::format("different from the start: {}", what)
                      : fmt::format("different from step {} on: {}", at.step, what);
}

}  // namespace ddp_doctor
