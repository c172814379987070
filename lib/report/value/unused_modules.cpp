// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/value/unused_modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

using Pattern = std::set<std::pair<std::int64_t, int>>;  // step, rank

bool within(const std::string& name, const std::string& module) {
  return module.empty() || name == module ||
         (name.starts_with(module) && name[module.size()] == '.');
}

// "a.b.weight" -> "", "a", "a.b"
std::vector<std::string> modules_above(const std::string& name) {
  std::vector<std::string> modules = {""};
  for (std::size_t dot = 0; (dot = name.find('.', dot)) != std::string::npos; ++dot)
    modules.push_back(name.substr(0, dot));
  return modules;
}

std::vector<std::string> topmost(const std::set<std::string>& unused,
                                 const std::set<std::string>& trainable) {
  std::set<std::string> names;
  for (const auto& name : unused) {
    const auto modules = modules_above(name);
    const auto whole = std::find_if(modules.begin(), modules.end(), [&](const auto& module) {
      return std::all_of(trainable.begin(), trainable.end(), [&](const auto& other) {
        return !within(other, module) || unused.contains(other);
      });
    });
    names.insert(whole == modules.end() ? name : *whole);
  }
  return {names.begin(), names.end()};
}

}  // namespace

std::vector<UnusedModules> unused_modules(const RunReport& run) {
  std::set<std::string> trainable;
  std::map<Pattern, std::set<std::string>> by_pattern;
  for (std::size_t id = 0; id < run.tensors.size(); ++id) {
    const auto& tensor = run.tensors[id];
    if (tensor.kind != "parameter" || !tensor.trainable) continue;
    trainable.insert(tensor.name);
    const int index = tensor.ddp_index.value_or(static_cast<int>(id));
    Pattern pattern;
    for (const auto& row : run.steps_table) {
      for (std::size_t rank = 0; rank < row.unused.size(); ++rank) {
        const auto& unused = row.unused[rank];
        if (std::find(unused.begin(), unused.end(), index) != unused.end())
          pattern.emplace(row.step, run.rank_at(rank));
      }
    }
    if (!pattern.empty()) by_pattern[pattern].insert(tensor.name);
  }
  std::vector<UnusedModules> groups;
  for (const auto& [pattern, names] : by_pattern) {
    std::set<int> ranks;
    std::set<std::int64_t> steps;
    for (const auto& [step, rank] : pattern) {
      ranks.insert(rank);
      steps.insert(step);
    }
    groups.push_back({topmost(names, trainable),
                      names.size(),
                      {ranks.begin(), ranks.end()},
                      {steps.begin(), steps.end()}});
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.parameters > b.parameters; });
  return groups;
}

std::string describe(const UnusedModules& group, const RunReport& run) {
  std::vector<std::string> names;
  for (const auto& name : group.names) names.push_back(name.empty() ? "the whole model" : name);
  return fmt::format("{} ({}): {}, in {} of {}, first in step {}", fmt::join(names, ", "),
                     count_of(group.parameters, "parameter"), ranks_of(group.ranks),
                     group.steps.size(), count_of(run.steps_table.size(), "step"),
                     group.steps.front());
}

}  // namespace ddp_doctor
