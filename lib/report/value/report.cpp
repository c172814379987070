// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/diagnose.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/report/value/median.h"
#include "lib/version.h"

namespace ddp_doctor {
namespace {

std::optional<double> gradient_norm(const Timeline& timeline, const TimelineStep& step, int rank) {
  double sum = 0.0;
  bool any = false;
  bool finite = true;
  for (int id : timeline.trainable()) {
    const auto seen = step.find(rank, id, Stage::kGradient);
    if (!seen) continue;
    any = true;
    finite = finite && seen->nonfinite == 0;
    sum += seen->l2_norm * seen->l2_norm;
  }
  if (!any) return {};
  return finite ? std::sqrt(sum) : std::nan("");
}

std::optional<double> slowest_ms(const TimelineStep& step) {
  std::optional<double> slowest;
  for (const auto* record : step.ranks) {
    if (record != nullptr)
      slowest = std::max(slowest.value_or(0.0), static_cast<double>(record->duration_ns) / 1e6);
  }
  return slowest;
}

// Old healthy steps lose their values, so that the record does not grow without bound. The count of
// the rank that lost most.
std::string thinning_of(const Timeline& timeline) {
  std::int64_t thinned = 0;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    const auto found = record->header.details.find("thinned");
    if (found != record->header.details.end())
      thinned = std::max<std::int64_t>(thinned, std::atoll(found->second.c_str()));
  }
  if (thinned == 0) return {};
  return fmt::format(
      "{} more steps were examined and healthy; their values were removed to keep the records "
      "small",
      thinned);
}

// Which steps were examined; empty if all of them were.
std::string sampling_of(const Timeline& timeline) {
  const auto setting = [&](const char* key) {
    const auto& settings = timeline.run.settings;
    const auto found = settings.find(key);
    return found == settings.end() ? 0 : std::atoll(found->second.c_str());
  };
  const auto every = setting("every");
  const auto warmup = setting("warmup");
  std::int64_t steps = 0;
  std::int64_t examined = 0;
  for (const auto& step : timeline.steps) {
    steps += step.number > 0;
    examined += step.number > 0 && step.examined();
  }
  const auto wanted = setting("steps");
  if (!timeline.run.is_script && timeline.run.ending != Ending::kStopAfter && wanted > 0 &&
      steps >= wanted) {
    return fmt::format("examined: the first {} (--steps); the rest of the program was not",
                       count_of(static_cast<std::size_t>(wanted), "step"));
  }
  if (warmup == 0 && every > 1) {
    return fmt::format(
        "examined: the first step, the last and every multiple of {}; other steps were not", every);
  }
  if (warmup == 0 || examined == steps || examined == 0) return {};
  return fmt::format(
      "examined: {} of {} steps (the first {}, then multiples of {}, and the last weights); of the "
      "others, events are known but no values",
      examined, steps, warmup, every);
}

// What was first seen in a step may have begun in one before it that was not examined.
std::string began_between(const Timeline& timeline, const std::vector<Finding>& findings) {
  for (const auto& finding : findings) {
    const auto* first = finding.first_step ? timeline.step(*finding.first_step) : nullptr;
    if (first == nullptr || !first->examined() || timeline.run.is_script) continue;
    std::int64_t before = first->number;
    for (const auto& step : timeline.steps) {
      if (step.number < first->number && step.examined()) before = step.number;
    }
    if (before + 1 >= first->number) continue;
    return fmt::format(
        "{} was first seen in step {}, and the step examined before it is {}; --warmup {} "
        "--stop-after {} examines those between them, too",
        finding.rule, first->number, before, first->number, first->number);
  }
  return {};
}

// False for the last examination of a finished program, which has weights only.
bool gradients_seen(const Timeline& timeline, const TimelineStep& step) {
  const auto ranks = timeline.ranks();
  return gradients_comparable(timeline, step) &&
         (timeline.trainable().empty() || std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
            return gradients_examined(timeline, step, rank);
          }));
}

StepRow row_of(const Timeline& timeline, const TimelineStep& step) {
  StepRow row;
  row.step = step.number;
  row.drift = step.weight_drift;
  row.drift_along = step.drift_along;
  if (step.examined()) {
    if (gradients_seen(timeline, step))
      row.synced = differing(timeline, step, Stage::kGradient).empty();
    row.weights_differ = !differing(timeline, step, Stage::kWeight).empty();
  }
  const auto ranks = timeline.ranks();
  const auto position = [&](int rank) {
    return static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) -
                                    ranks.begin());
  };
  for (int rank : ranks) {
    const auto* record = step.at(rank);
    row.loss.push_back(record == nullptr ? std::nullopt : record->loss);
    const int same_gradients = step.like(rank, {Seen::kDigests, Stage::kGradient});
    row.gradient_norm.push_back(same_gradients < rank ? row.gradient_norm[position(same_gradients)]
                                                      : gradient_norm(timeline, step, rank));
    const int same_usage = step.like(rank, {Seen::kUsages, Stage{}});
    if (same_usage < rank) {
      row.unused.push_back(row.unused[position(same_usage)]);
      continue;
    }
    auto& indices = row.unused.emplace_back();
    for (int id : unused(timeline, step, rank)) {
      indices.push_back(timeline.tensors[static_cast<std::size_t>(id)].ddp_index.value_or(id));
    }
  }
  row.milliseconds = slowest_ms(step);
  return row;
}

std::optional<StepTime> time_of(const Timeline& timeline) {
  constexpr std::int64_t kWarmUp = 2;
  std::vector<double> times;
  for (const auto& step : timeline.steps) {
    const auto slowest = slowest_ms(step);
    if (slowest && step.number > kWarmUp) times.push_back(*slowest);
  }
  if (times.empty()) return {};
  const auto [low, high] = std::minmax_element(times.begin(), times.end());
  return StepTime{median(times), *low, *high, times.size()};
}

std::map<std::int64_t, Where> step_places_of(const Timeline& timeline) {
  std::map<std::int64_t, Where> places;
  for (const auto& step : timeline.steps) {
    const auto place = step.number > 0 ? where_stepped(timeline, step.number) : std::nullopt;
    if (place && (places.empty() || places.rbegin()->second != *place))
      places.emplace(step.number, *place);
  }
  return places;
}

std::optional<double> probe_cost(const Timeline& timeline) {
  std::vector<double> costs;
  for (const auto& step : timeline.steps) {
    for (const auto* record : step.ranks) {
      if (record != nullptr && step.number > 0)
        costs.push_back(static_cast<double>(record->probe_ns) / 1e6);
    }
  }
  if (costs.empty()) return {};
  return median(std::move(costs));
}

// No shards, nothing that says that ranks hold different parts of one model, and no collective of
// some ranks inside a forward or backward.
bool plain_data_parallel(const Timeline& timeline) {
  const auto& layout = timeline.layout;
  if (timeline.replicas.size() > 1 || !timeline.rank_local.empty()) return false;
  if (!layout.model_parallel.empty() || !layout.replicated()) return false;
  for (const auto& step : timeline.steps) {
    for (const auto* record : step.records()) {
      if (std::any_of(record->calls.begin(), record->calls.end(), [](const Collective& call) {
            return !call.group.empty() && (call.moment == "forward" || call.moment == "backward");
          }))
        return false;
    }
  }
  return true;
}

bool finished(const Timeline& timeline) {
  if (timeline.run.ending == Ending::kStopAfter) return true;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) return false;
    const bool ended = std::any_of(record->events.begin(), record->events.end(),
                                   [](const Event& event) { return event.kind == "end"; });
    if (!ended) return false;
  }
  return true;
}

// Why the run did not finish, if that is known.
const Finding* find_end(const std::vector<Finding>& findings) {
  if (const auto* hang = find_finding(findings, is_hang)) return hang;
  return find_finding(findings,
                      [](const Finding& finding) { return rule_of(finding).rank_failed; });
}

std::int64_t last_row(const RunReport& run) {
  return run.steps_table.empty() ? 0 : run.steps_table.back().step;
}

std::int64_t last_step_of(const RunReport& run) {
  const auto* crash = find_end(run.diagnosis.findings);
  return crash != nullptr && crash->first_step ? *crash->first_step
                                               : std::max(run.steps_done, last_row(run)) + 1;
}

std::string outcome_of(const RunReport& run) {
  if (const auto* crash = find_end(run.diagnosis.findings)) {
    const auto kind = crash->evidence.value("kind", "");
    const auto phase = crash->evidence.value("phase", "");
    if (is_hang(*crash))
      return fmt::format("hung in step {}: {} {}", crash->first_step.value_or(1), crash->rule,
                         crash->name);
    const char* how = kind == "signal" ? "killed" : "raised";
    return fmt::format("{} in step {}{}: {}", how, crash->first_step.value_or(1),
                       phase.empty() ? "" : " (" + phase + ")", crash->evidence.value("error", ""));
  }
  if (!run.completed && run.info.ending == Ending::kInterrupted)
    return fmt::format("interrupted after {}",
                       count_of(static_cast<std::size_t>(run.outcome_step - 1), "step"));
  if (!run.completed) return fmt::format("stopped in step {}", run.outcome_step);
  std::string codes;
  for (const auto& finding : run.diagnosis.findings) {
    if (finding.severity == Severity::kAdvice) continue;
    codes += (codes.empty() ? "" : ", ") + finding.rule + " " + finding.name;
  }
  if (!codes.empty()) return codes;
  if (!run.whole()) return "nothing found on " + ranks_of(run.ranks.list());
  return run.conclusive() ? "clean" : "no step compared";
}

// What its strategy did to the program, as the lowest rank reports it.
void read_strategy(const Timeline& timeline, RunReport& report) {
  if (const auto& tried = timeline.run.tried)
    report.changes.push_back(
        fmt::format("{}:{}: {}", tried->change.file, tried->change.line, tried->change.text));
  const auto* record = timeline.record(timeline.first_rank());
  if (record == nullptr) return;
  for (const auto& fact : record->facts) {
    if (!fact.subject.starts_with("strategy ")) continue;
    const auto text = nlohmann::json::parse(fact.value, nullptr, false);
    auto& list = fact.key == "applied" ? report.changes : report.unapplied;
    list.push_back(text.is_string() ? text.get<std::string>() : fact.value);
  }
}

Health health_of(const std::vector<Finding>& findings, const RunReport& run) {
  const bool sick = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity >= Severity::kWarning;
  });
  if (sick) return Health::kSick;
  const bool compared = !run.parity || run.parity->inconclusive.empty();
  return run.conclusive() && compared ? Health::kHealthy : Health::kInconclusive;
}

}  // namespace

bool RunReport::whole() const {
  return ranks.empty() || static_cast<int>(ranks.size()) == info.world_size;
}

int RunReport::rank_at(std::size_t position) const {
  return ranks.empty() ? static_cast<int>(position) : ranks.at(position);
}

std::optional<std::string> note_on_absent_ranks(const RunReport& run) {
  if (run.whole()) return {};
  std::vector<int> all(static_cast<std::size_t>(run.info.world_size));
  std::iota(all.begin(), all.end(), 0);
  const auto absent = RankSet(all).without(run.ranks).list();
  return fmt::format(
      "{} {} not seen here; if they ran on other machines, merge all run folders (--out DIR) or "
      "JSON reports with `ddp-doctor report`",
      ranks_of(absent), absent.size() == 1 ? "was" : "were");
}

void settle_outcome(RunReport& run) {
  run.outcome_step = run.completed ? 0 : last_step_of(run);
  run.outcome = outcome_of(run);
}

bool RunReport::clean() const {
  return completed && whole() &&
         std::none_of(
             diagnosis.findings.begin(), diagnosis.findings.end(),
             [](const Finding& finding) { return finding.severity >= Severity::kWarning; });
}

// That nothing was found means nothing without a step that every rank completed, and too little
// before the end of the run.
bool RunReport::conclusive() const {
  return completed && whole() && comparable(roots) && coverage.nothing.empty() &&
         std::any_of(steps_table.begin(), steps_table.end(),
                     [](const StepRow& row) { return row.synced.has_value(); });
}

Health RunReport::health() const { return health_of(diagnosis.findings, *this); }

std::int64_t RunReport::steps_seen() const { return std::max(last_step, last_row(*this)); }

const char* name_of(Health health) {
  switch (health) {
    case Health::kHealthy:
      return "healthy";
    case Health::kSick:
      return "sick";
    case Health::kInconclusive:
      return "inconclusive";
  }
  return "";
}

RunReport report_run(const Timeline& timeline, int index) {
  RunReport report;
  report.info = timeline.run;
  report.ranks = RankSet(timeline.ranks());
  // With several models, roots would only tell one model from another.
  if (timeline.replicas.size() == 1) report.roots = roots_of(timeline);
  report.tensors = timeline.tensors;
  report.mesh = mesh_map_of(timeline);
  report.notes = timeline.notes;
  if (auto note = note_on_absent_ranks(report)) report.notes.push_back(std::move(*note));
  report.mean_check = timeline.mean_check;
  if (auto sampling = sampling_of(timeline); !sampling.empty())
    report.notes.push_back(std::move(sampling));
  if (auto thinning = thinning_of(timeline); !thinning.empty())
    report.notes.push_back(std::move(thinning));
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) continue;
    report.environment = record->header.details;
    report.ddp = record->ddp_fields;
    break;
  }
  for (const auto& step : timeline.steps) {
    const bool looked_at = std::any_of(step.ranks.begin(), step.ranks.end(), [](const auto* rank) {
      return rank != nullptr && rank->examined;
    });
    if (step.number > 0 && looked_at) report.steps_table.push_back(row_of(timeline, step));
  }
  report.step_time = time_of(timeline);
  report.probe_ms = probe_cost(timeline);
  report.completed = finished(timeline);
  if (!timeline.steps.empty()) {
    report.last_step = timeline.steps.back().number;
    if (timeline.steps.back().complete()) report.steps_done = report.last_step;
  }
  report.diagnosis = diagnose(timeline, index);
  if (auto between = began_between(timeline, report.diagnosis.findings); !between.empty())
    report.notes.push_back(std::move(between));
  report.coverage = coverage_of(timeline, report.diagnosis);
  report.phases = phases_of(timeline, report.diagnosis.findings);
  settle_outcome(report);
  read_strategy(timeline, report);
  report.plain_data_parallel = plain_data_parallel(timeline);
  report.wrap_place = where(timeline, "wrap");
  report.step_places = step_places_of(timeline);
  report.fingerprint = Fingerprint::later(timeline);
  report.magnitudes = Magnitudes::later(timeline);
  return report;
}

std::optional<double> median_step_ms(const Timeline& timeline) {
  const auto time = time_of(timeline);
  return time ? std::optional(time->median_ms) : std::nullopt;
}

std::optional<Where> RunReport::stepped_at(std::optional<std::int64_t> step) const {
  if (step_places.empty()) return {};
  auto after = step ? step_places.upper_bound(*step) : std::next(step_places.begin());
  return after == step_places.begin() ? after->second : std::prev(after)->second;
}

Health Report::health() const {
  const Health health = health_of(findings, runs.front());
  return health == Health::kHealthy && nothing_compared ? Health::kInconclusive : health;
}

bool Report::bit_identical() const {
  const auto& rows = runs.front().steps_table;
  return comparable(runs.front().roots) &&
         std::all_of(rows.begin(), rows.end(), [](const StepRow& row) {
           return row.synced.value_or(true) && !row.weights_differ;
         });
}

RunReport report_of_no_run(const RunInfo& run, const std::string& reason) {
  RunReport report;
  report.info = run;
  report.outcome = "could not run: " + reason.substr(0, reason.find('\n'));
  return report;
}

}  // namespace ddp_doctor
