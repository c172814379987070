// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/merge/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <tuple>

#include "lib/diagnose/rule.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr char kNotOneJob[] =
    "; merge the reports of one job's machines only, or show these one by one";

constexpr char kWithin[] =
    "ranks of different reports were compared by gradients and weights only; buffers, optimizer "
    "settings, data, used parameters and collectives only within each report";

// Each machine's launcher is given its own number or address.
std::string program_of(const Report& report) {
  static const std::regex own(
      " --(node[-_]rank|machine[-_]rank|local[-_]addr|node[-_]id)[= ][^ ]+");
  return std::regex_replace(report.program, own, "");
}

void insist_on_one_job(const std::vector<NamedReport>& reports) {
  const auto& first = reports.front();
  const auto insist = [&](const NamedReport& other, const char* what, const auto& of) {
    if (of(first.report) == of(other.report)) return;
    throw Error(fmt::format("{} and {} have different {} ({} and {}){}", first.name, other.name,
                            what, of(first.report), of(other.report), kNotOneJob));
  };
  for (const auto& other : reports) {
    insist(other, "programs", program_of);
    insist(other, "world sizes", [](const Report& report) { return report.world_size; });
    insist(other, "strategies",
           [](const Report& report) { return report.runs.front().info.strategy; });
    for (const auto* before = &first; before != &other; ++before) {
      const auto both = before->report.runs.front().ranks.common(other.report.runs.front().ranks);
      if (both.empty()) continue;
      throw Error(fmt::format("{} and {} are both about rank {}{}", before->name, other.name,
                              both.text(), kNotOneJob));
    }
  }
}

template <class Value>
std::vector<Value> sorted(const std::set<Value>& values) {
  return {values.begin(), values.end()};
}

void merge_exits(const std::vector<const RunReport*>& runs, RunReport& merged) {
  merged.info.exits.clear();
  for (const auto* run : runs) {
    merged.ended_well.add(run->ended_well);
    merged.info.exits.insert(merged.info.exits.end(), run->info.exits.begin(),
                             run->info.exits.end());
  }
  auto& exits = merged.info.exits;
  std::sort(exits.begin(), exits.end(),
            [](const RankExit& a, const RankExit& b) { return a.rank < b.rank; });
  if (merged.ranks.size() <= kMaxRanksOneByOne) return;
  std::vector<int> well;
  std::erase_if(exits, [&](const RankExit& exit) {
    if (exit.kind != RankExit::Kind::kExited || exit.code != 0) return false;
    well.push_back(exit.rank);
    return true;
  });
  merged.ended_well.add(RankSet(well));
}

void add_groups(std::vector<RootGroup>& into, const std::vector<RootGroup>& groups) {
  for (const auto& group : groups) {
    const auto known = std::find_if(into.begin(), into.end(), [&](const RootGroup& other) {
      return std::tie(other.replicas, other.tensors, other.root) ==
             std::tie(group.replicas, group.tensors, group.root);
    });
    if (known == into.end()) {
      into.push_back(group);
    } else {
      known->ranks.add(group.ranks);
    }
  }
  std::sort(into.begin(), into.end(), [](const RootGroup& a, const RootGroup& b) {
    return std::tie(a.replicas, a.tensors, a.root) < std::tie(b.replicas, b.tensors, b.root);
  });
}

std::vector<StepRoots> merge_roots(const std::vector<const RunReport*>& runs) {
  std::map<std::int64_t, StepRoots> by_step;
  for (const auto* run : runs) {
    for (const auto& step : run->roots) {
      auto& merged = by_step[step.step];
      merged.step = step.step;
      add_groups(merged.gradient, step.gradient);
      add_groups(merged.weight, step.weight);
    }
  }
  std::vector<StepRoots> roots;
  for (auto& [number, step] : by_step) roots.push_back(std::move(step));
  return roots;
}

// Notes about missing or not compared ranks are made again for the merged report.
std::vector<std::string> merge_notes(const std::vector<const RunReport*>& runs,
                                     const RunReport& merged) {
  std::set<std::string> notes = {kWithin};
  for (const auto* run : runs) {
    const auto absent = note_on_absent_ranks(*run);
    const auto uncompared = note_on_uncompared(*run);
    for (const auto& note : run->notes) {
      if (note != absent && note != uncompared) notes.insert(note);
    }
  }
  if (auto note = note_on_absent_ranks(merged)) notes.insert(std::move(*note));
  if (auto note = note_on_uncompared(merged)) notes.insert(std::move(*note));
  return sorted(notes);
}

// A rule is decided if every report decided it, or the roots of all of them do.
void merge_checked(const std::vector<const RunReport*>& runs, RunReport& merged) {
  std::map<std::string, std::size_t> checked;
  std::set<std::pair<std::string, std::string>> reasons;
  for (const auto* run : runs) {
    for (const auto& rule : run->diagnosis.checked) ++checked[rule];
    for (const auto& [rule, reason] : run->diagnosis.not_checked) reasons.emplace(rule, reason);
  }
  for (const auto& rule : decided_by_roots(merged)) checked[rule] = runs.size();
  const auto everywhere = [&](const std::string& rule) {
    const auto found = checked.find(rule);
    return found != checked.end() && found->second == runs.size();
  };
  for (const auto& [rule, count] : checked) {
    if (everywhere(rule)) merged.diagnosis.checked.push_back(rule);
  }
  for (const auto& [rule, reason] : reasons) {
    if (!everywhere(rule)) merged.diagnosis.not_checked.push_back({rule, reason});
  }
}

// A median of medians is not a median: take the slowest machine's times.
void merge_times(const std::vector<const RunReport*>& runs, RunReport& merged) {
  const auto order = [](const StepTime& time) {
    return std::tuple(time.median_ms, time.high_ms, time.low_ms, time.steps);
  };
  merged.step_time.reset();
  merged.probe_ms.reset();
  for (const auto* run : runs) {
    const auto& time = run->step_time;
    if (time && (!merged.step_time || order(*merged.step_time) < order(*time)))
      merged.step_time = time;
    if (run->probe_ms && merged.probe_ms.value_or(-1.0) < *run->probe_ms)
      merged.probe_ms = run->probe_ms;
  }
}

void merge_suppressions(const std::vector<const Report*>& reports, Report& merged) {
  std::map<std::string, Suppressed> suppressed;
  std::set<std::string> unused(merged.unused_suppressions.begin(),
                               merged.unused_suppressions.end());
  std::map<std::string, std::string> partial;
  for (const auto* report : reports) {
    for (const auto& one : report->suppressed)
      suppressed.emplace(one.suppression + '\n' + one.finding.message, one);
    std::erase_if(unused, [&](const std::string& text) {
      const auto& here = report->unused_suppressions;
      return std::find(here.begin(), here.end(), text) == here.end();
    });
    for (const auto& [text, left] : report->partial_suppressions) {
      const auto [known, fresh] = partial.emplace(text, left);
      if (!fresh) known->second = std::min(known->second, left);
    }
  }
  merged.suppressed.clear();
  for (auto& [key, one] : suppressed) merged.suppressed.push_back(std::move(one));
  merged.unused_suppressions = sorted(unused);
  merged.partial_suppressions.clear();
  for (auto& [text, left] : partial) merged.partial_suppressions.push_back({text, left});
}

// Ranks of one report each hold what others may or may not have to hold, too.
bool undeclared_parts(const RunReport& run) {
  return std::any_of(run.roots.begin(), run.roots.end(), [](const StepRoots& step) {
    return std::any_of(step.weight.begin(), step.weight.end(), [&](const RootGroup& group) {
      return group.replicas == kUndeclared && !all_equal(step.weight) && !some_differ(step.weight);
    });
  });
}

// A finding about unused parameters on some ranks is a guess about all; with all ranks it is
// certain.
void make_certain(std::vector<Finding>& findings, const RankSet& all) {
  for (auto& finding : findings) {
    if (rule_of(finding).names_unused == NamesUnused::kEverywhere && RankSet(finding.ranks) == all)
      finding.certainty = Certainty::kCertain;
    make_certain(finding.consequences, all);
  }
}

}  // namespace

Report merge(std::vector<NamedReport> reports) {
  std::sort(reports.begin(), reports.end(), [](const NamedReport& a, const NamedReport& b) {
    return a.report.runs.front().ranks.first() < b.report.runs.front().ranks.first();
  });
  insist_on_one_job(reports);
  if (reports.size() == 1) return std::move(reports.front().report);
  std::vector<const Report*> all;
  std::vector<const RunReport*> runs;
  for (const auto& [name, report] : reports) {
    all.push_back(&report);
    runs.push_back(&report.runs.front());
  }
  // What all ranks share is taken from the lowest one.
  Report merged = reports.front().report;
  RunReport& run = merged.runs.front();
  run.mean_check.reset();
  run.diagnosis = {};
  for (const auto* other : runs) {
    run.ranks.add(other->ranks);
    run.completed = run.completed && other->completed;
    run.last_step = std::max(run.last_step, other->last_step);
    if (run.coverage.nothing.empty()) run.coverage.nothing = other->coverage.nothing;
  }
  merge_exits(runs, run);
  merge_times(runs, run);
  run.roots = merge_roots(runs);
  run.mesh = {};  // each report has the replicas among its own ranks
  if (run.coverage.nothing.empty() && (undeclared_parts(run) || come_together(run)))
    run.coverage.nothing =
        "ranks of different reports may differ on purpose (parts of a model that nobody declares, "
        "or "
        "weights that the program averages itself); open their run folders together "
        "(`ddp-doctor report FOLDER-A FOLDER-B`)";
  run.steps_table = merge_steps(runs, run);
  run.notes = merge_notes(runs, run);
  merge_checked(runs, run);
  merge_suppressions(all, merged);
  merged.findings = merge_findings(all, between_reports(run));
  if (run.whole()) make_certain(merged.findings, run.ranks);
  run.diagnosis.findings = merged.findings;
  settle_outcome(run);
  return merged;
}

}  // namespace ddp_doctor
