// SPDX-License-Identifier: BSD-3-Clause
// Each report may be healthy by itself while the ranks of one differ from those of another.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/report/merge/merge.h"

namespace ddp_doctor {
namespace {

constexpr char kBetween[] = "between-reports";
constexpr std::size_t kMaxGroups = 16;  // listed

using Groups = std::vector<RankSet>;

// Ranks with the same tensors, grouped by their bits, largest group first; of the tensors with the
// most groups.
Groups differing_groups(const std::vector<RootGroup>& roots) {
  std::map<std::pair<std::string, std::string>, Groups> by_tensors;
  for (const auto& root : roots) {
    if (root.replicas != kUndeclared)
      by_tensors[{root.replicas, root.tensors}].push_back(root.ranks);
  }
  Groups result;
  for (auto& [tensors, groups] : by_tensors) {
    if (groups.size() > std::max<std::size_t>(result.size(), 1)) result = std::move(groups);
  }
  std::sort(result.begin(), result.end(), [](const RankSet& a, const RankSet& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.first() < b.first();
  });
  return result;
}

struct Kind {
  const Rule& rule;
  const char* what;
  std::vector<RootGroup> StepRoots::*groups;
  bool before_the_first;
};

const Kind kKinds[] = {
    {kInitialWeightsDiffer, "weights", &StepRoots::weight, true},
    {kGradientsOutOfSync, "gradients at optimizer.step", &StepRoots::gradient, false},
    {kWeightsDrift, "weights", &StepRoots::weight, false},
};

// The minority, if most ranks agree.
RankSet at_fault(const Groups& groups) {
  RankSet all;
  for (const auto& group : groups) all.add(group);
  return 2 * groups.front().size() > all.size() ? all.without(groups.front()) : all;
}

std::string in_words(const Groups& groups) {
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < 3; ++i)
    text += fmt::format("{}[{}]", i == 0 ? "" : ", ", groups[i].text());
  return groups.size() > 3 ? text + fmt::format(" and {} more", groups.size() - 3) : text;
}

std::optional<Finding> look(const RunReport& merged, const Kind& kind) {
  std::optional<std::int64_t> first, equal_before;
  Groups groups;
  std::size_t apart = 0, compared = 0;
  for (const auto& step : merged.roots) {
    const auto& roots = step.*kind.groups;
    if ((step.step == 0) != kind.before_the_first || roots.empty()) continue;
    ++compared;
    auto here = differing_groups(roots);
    if (here.empty()) {
      if (!first) equal_before = step.step;
      continue;
    }
    ++apart;
    if (first) continue;
    first = step.step;
    groups = std::move(here);
  }
  if (!first) return {};
  Finding finding = finding_of(kind.rule);
  finding.ranks = at_fault(groups).list();
  finding.first_step = std::max<std::int64_t>(*first, 1);
  finding.evidence["kind"] = kBetween;
  auto& listed = finding.evidence["groups"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < groups.size() && i < kMaxGroups; ++i)
    listed.push_back(groups[i].text());
  finding.evidence["groups_in_all"] = groups.size();
  if (!kind.before_the_first) {
    finding.evidence["steps_apart"] = apart;
    finding.evidence["steps_seen"] = compared;
    if (equal_before) finding.evidence["last_equal_step"] = *equal_before;
  }
  const std::string since =
      kind.before_the_first ? "Before the first step"
      : equal_before && *equal_before + 1 < *first
          ? fmt::format("From step {} on (still equal in step {}, the last one examined before)",
                        *first, *equal_before)
          : fmt::format("From step {} on", *first);
  finding.message =
      fmt::format("{} the {} differ between reports: ranks {} agree among themselves.", since,
                  kind.what, in_words(groups));
  finding.prescription = {
      fmt::format("Open the run folders of two machines together, one with rank {} and one with "
                  "rank {}: `ddp-doctor report FOLDER-A FOLDER-B` names the parameters, and the "
                  "cause if it is known.",
                  groups[0].first(), groups[1].first()),
      ""};
  return finding;
}

}  // namespace

bool come_together(const RunReport& merged) {
  bool apart = false;
  for (const auto& step : merged.roots) {
    if (step.step == 0 || step.weight.empty()) continue;
    if (apart && all_equal(step.weight)) return true;
    apart = apart || some_differ(step.weight);
  }
  return false;
}

std::vector<Finding> between_reports(const RunReport& merged) {
  std::vector<Finding> findings;
  const bool separate = come_together(merged);
  for (const auto& kind : kKinds) {
    if (separate && !kind.before_the_first) continue;
    if (auto finding = look(merged, kind)) findings.push_back(std::move(*finding));
  }
  return findings;
}

bool is_between_reports(const Finding& finding) {
  return finding.evidence.value("kind", "") == kBetween;
}

std::vector<std::string> decided_by_roots(const RunReport& merged) {
  std::vector<std::string> decided;
  const bool separate = come_together(merged);
  for (const auto& kind : kKinds) {
    if (separate && !kind.before_the_first) continue;
    const bool somewhere =
        std::any_of(merged.roots.begin(), merged.roots.end(), [&](const StepRoots& step) {
          const auto& groups = step.*kind.groups;
          RankSet seen;
          for (const auto& group : groups) seen.add(group.ranks);
          return (step.step == 0) == kind.before_the_first && seen == merged.ranks &&
                 (all_equal(groups) || (comparable(groups) && some_differ(groups)));
        });
    if (somewhere) decided.emplace_back(kind.rule.code);
  }
  return decided;
}

std::optional<std::string> note_on_uncompared(const RunReport& run) {
  for (const auto& step : run.roots) {
    for (const auto* groups : {&step.weight, &step.gradient}) {
      if (comparable(*groups)) continue;
      std::map<std::string, std::map<std::string, RankSet>> by_replicas;
      for (const auto& group : *groups) {
        if (group.replicas != kUndeclared)
          by_replicas[group.replicas][group.tensors].add(group.ranks);
      }
      const auto& by_tensors =
          std::find_if(by_replicas.begin(), by_replicas.end(), [](const auto& of) {
            return of.second.size() > 1;
          })->second;
      std::string ranks;
      for (const auto& [tensors, here] : by_tensors)
        ranks += fmt::format("{}[{}]", ranks.empty() ? "" : " and ", here.text());
      return fmt::format(
          "ranks {} were not compared with each other: their parameters have other names, types or "
          "sizes; open their run folders together (`ddp-doctor report FOLDER-A FOLDER-B`)",
          ranks);
    }
  }
  return {};
}

}  // namespace ddp_doctor
