// SPDX-License-Identifier: BSD-3-Clause
// The findings of several reports.

#include <algorithm>
#include <map>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/rank_failures.h"
#include "lib/diagnose/rule.h"
#include "lib/report/merge/merge.h"
#include "lib/report/render/render.h"

namespace ddp_doctor {
namespace {

// Findings with the same key say the same about different ranks.
std::string key_of(const Finding& finding) {
  const auto json = finding_as_json(finding);
  std::string key;
  for (const char* field : {"rule", "severity", "certainty", "parameters", "where"})
    key += json.at(field).dump() + '\n';
  return key + finding.evidence.value("kind", "");
}

// Which of several is shown: the earliest, and among those always the same one.
std::pair<std::int64_t, std::string> order_of(const Finding& finding) {
  auto json = finding_as_json(finding);
  json.erase("ranks");
  return {finding.first_step.value_or(INT64_MAX), json.dump()};
}

std::vector<Finding> unite(const std::vector<Finding>& findings) {
  std::map<std::string, Finding> by_key;
  std::map<std::string, RankSet> ranks;
  for (const auto& finding : findings) {
    const auto key = key_of(finding);
    ranks[key].add(RankSet(finding.ranks));
    const auto [known, fresh] = by_key.emplace(key, finding);
    if (!fresh && order_of(finding) < order_of(known->second)) known->second = finding;
  }
  std::vector<Finding> united;
  for (auto& [key, finding] : by_key) {
    finding.ranks = ranks[key].list();
    united.push_back(std::move(finding));
  }
  return united;
}

bool lost_a_peer(const Finding& finding) {
  return rule_of(finding).rank_failed && !is_own_failure(finding.evidence.value("kind", ""));
}

bool waited_for_others(const Finding& finding) {
  return finding.evidence.value("ran_elsewhere", false);
}

// A rank failed or diverged for a reason that its own report gives.
bool ended_the_job(const Finding& finding) {
  return (rule_of(finding).rank_failed || is_hang(finding)) && !lost_a_peer(finding) &&
         !waited_for_others(finding);
}

// A consequence of a finding in another report, which one report alone cannot know.
bool explains(const Finding& cause, const Finding& effect) {
  if (is_between_reports(cause)) return cause.rule == effect.rule && !is_between_reports(effect);
  return ended_the_job(cause) && (lost_a_peer(effect) || waited_for_others(effect));
}

}  // namespace

std::vector<Finding> merge_findings(const std::vector<const Report*>& reports,
                                    std::vector<Finding> between) {
  std::vector<Finding> all;
  for (const auto* report : reports) {
    for (auto& finding : flattened(report->findings)) {
      finding.proof.reset();
      all.push_back(std::move(finding));
    }
  }
  std::erase_if(all, is_between_reports);
  all = unite(all);
  std::vector<Finding> waiting;  // not a root cause if a better one is known
  if (std::any_of(all.begin(), all.end(), ended_the_job)) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(waiting), waited_for_others);
    std::erase_if(all, waited_for_others);
  }
  all.insert(all.end(), between.begin(), between.end());
  std::vector<Finding> roots = nest_consequences(std::move(all));
  roots.insert(roots.end(), waiting.begin(), waiting.end());
  for (std::size_t i = 0; i < roots.size();) {
    const auto cause = std::find_if(roots.begin(), roots.end(), [&](const Finding& other) {
      return explains(other, roots[i]);
    });
    if (cause == roots.end()) {
      ++i;
      continue;
    }
    auto own = std::exchange(roots[i].consequences, {});
    cause->consequences.push_back(roots[i]);
    cause->consequences.insert(cause->consequences.end(), own.begin(), own.end());
    roots.erase(roots.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return roots;
}

}  // namespace ddp_doctor
