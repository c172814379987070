// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/private_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/timeline/left_out_steps.h"

namespace ddp_doctor {
namespace {

struct Optimizer {
  std::vector<std::vector<std::int64_t>> shapes;  // of what it held first
  std::set<int> tensors;                          // of all that it ever held
  bool wrapped = false;                           // some are in a wrapper
  std::size_t steps = 0;
};

using Optimizers = std::map<int, Optimizer>;  // by number

Optimizers optimizers_of(const RankRecord& record) {
  Optimizers found;
  for (const auto& fact : record.facts) {
    if (!fact.is("optimizer", "tensors")) continue;
    auto& optimizer = found[*number_in(fact.subject, "optimizer")];
    const bool first = optimizer.tensors.empty();
    const auto ids = nlohmann::json::parse(fact.value, nullptr, false);
    for (const auto& id : ids) {
      const auto tensor =
          std::find_if(record.tensors.begin(), record.tensors.end(),
                       [&](const TensorInfo& info) { return info.id == id.get<int>(); });
      if (tensor == record.tensors.end()) continue;
      optimizer.tensors.insert(tensor->id);
      optimizer.wrapped = optimizer.wrapped || tensor->wrapper;
      if (first) optimizer.shapes.push_back(tensor->sizes);
    }
  }
  for (const auto& step : record.steps) {
    const auto its = found.find(step.optimizer);
    if (step.step > 0 && its != found.end()) ++its->second.steps;
  }
  return found;
}

// The optimizer of `mine` among `left` that is most like `wanted`: as many steps, or the later one.
std::set<int>::iterator counterpart(const Optimizers& mine, std::set<int>& left,
                                    const Optimizer& wanted) {
  auto best = left.end();
  const auto missing = [&](int number) {
    const std::size_t steps = mine.at(number).steps;
    return std::max(steps, wanted.steps) - std::min(steps, wanted.steps);
  };
  for (auto candidate = left.begin(); candidate != left.end(); ++candidate) {
    const Optimizer& its = mine.at(*candidate);
    if (its.shapes != wanted.shapes || its.wrapped != wanted.wrapped) continue;
    if (best == left.end() || missing(*candidate) <= missing(*best)) best = candidate;
  }
  return best;
}

std::string without_prefix(const std::string& name) { return name.substr(name.find(':') + 1); }

// The other rank also has such a tensor but no optimizer for it: that is a bug, not a private step.
bool knows(const RankRecord& other, const Optimizers& its_optimizers, const TensorInfo& tensor) {
  return std::any_of(other.tensors.begin(), other.tensors.end(), [&](const TensorInfo& its) {
    const bool held = std::any_of(
        its_optimizers.begin(), its_optimizers.end(),
        [&](const auto& optimizer) { return optimizer.second.tensors.contains(its.id); });
    return !held && its.sizes == tensor.sizes &&
           without_prefix(its.name) == without_prefix(tensor.name);
  });
}

bool is_apart(const RankRecord& record, const Optimizers& all, int number, const RankRecord& other,
              const Optimizers& its_optimizers) {
  const auto& held = all.at(number).tensors;
  const bool shared =
      std::any_of(record.tensors.begin(), record.tensors.end(), [&](const TensorInfo& tensor) {
        return held.contains(tensor.id) && (tensor.wrapper || knows(other, its_optimizers, tensor));
      });
  return !shared && std::none_of(all.begin(), all.end(), [&](const auto& another) {
    return another.first != number && std::any_of(held.begin(), held.end(), [&](int id) {
             return another.second.tensors.contains(id);
           });
  });
}

// Numbers of the optimizers that only this rank has; empty if that is unknown.
std::set<int> private_ones(const RankRecord& record, const Optimizers& mine,
                           const RankRecord& other, const Optimizers& fewest) {
  std::set<int> left;
  for (const auto& [number, optimizer] : mine) left.insert(number);
  for (const auto& [number, shared] : fewest) {
    const auto same = counterpart(mine, left, shared);
    if (same == left.end()) return {};
    left.erase(same);
  }
  const bool apart = std::all_of(left.begin(), left.end(), [&](int number) {
    return is_apart(record, mine, number, other, fewest);
  });
  return apart ? left : std::set<int>{};
}

// With a second model, names start with the model's class; without it, the other ranks' names do
// not.
void take_prefix_away(std::vector<TensorInfo>& tensors) {
  const auto prefix_of = [](const TensorInfo& tensor) {
    return tensor.name.substr(0, tensor.name.find(':') + 1);
  };
  if (tensors.empty()) return;
  const std::string prefix = prefix_of(tensors.front());
  const bool common = std::all_of(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) {
    return prefix_of(tensor) == prefix;
  });
  if (!common) return;
  for (auto& tensor : tensors) tensor.name.erase(0, prefix.size());
}

void leave_out(RankRecord& record, const Optimizers& mine, const std::set<int>& numbers) {
  std::set<int> tensors;
  for (const int number : numbers)
    tensors.insert(mine.at(number).tensors.begin(), mine.at(number).tensors.end());
  std::vector<std::int64_t> steps;
  for (const auto& step : record.steps) {
    if (step.step > 0 && numbers.contains(step.optimizer)) steps.push_back(step.step);
  }
  leave_out_steps(record, steps);
  const auto optimizer_of = [&](int number) {
    return number - static_cast<int>(std::distance(numbers.begin(), numbers.lower_bound(number)));
  };
  for (auto& step : record.steps) step.optimizer = optimizer_of(step.optimizer);
  // "optimizer 1" of facts, "step 1" of sites.
  const auto renumber = [&](std::string& text, std::string_view kind) {
    const auto number = number_in(text, kind);
    if (!number) return true;
    text = fmt::format("{} {}", kind, optimizer_of(*number));
    return !numbers.contains(*number);
  };
  std::erase_if(record.facts, [&](Fact& fact) { return !renumber(fact.subject, "optimizer"); });
  std::erase_if(record.sites, [&](Site& site) { return !renumber(site.what, "step"); });
  // Ids must stay positions, so removed tensors only lose their name and everything that rules
  // check.
  std::vector<TensorInfo> left;
  for (auto& tensor : record.tensors) {
    if (!tensors.contains(tensor.id)) left.push_back(tensor);
  }
  take_prefix_away(left);
  for (auto& tensor : record.tensors) {
    const auto kept = std::find_if(left.begin(), left.end(),
                                   [&](const TensorInfo& info) { return info.id == tensor.id; });
    if (kept != left.end()) {
      tensor.name = kept->name;
    } else {
      tensor.kind = "private";
      tensor.trainable = false;
      tensor.name = fmt::format("private to rank {}: {}", record.header.rank, tensor.name);
    }
  }
}

}  // namespace

std::vector<std::string> leave_out_private_steps(std::vector<RankRecord>& records) {
  std::vector<Optimizers> optimizers;
  for (const auto& record : records) optimizers.push_back(optimizers_of(record));
  const auto fewest = std::min_element(
      optimizers.begin(), optimizers.end(),
      [](const Optimizers& a, const Optimizers& b) { return a.size() < b.size(); });
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (fewest->empty() || optimizers[i].size() == fewest->size()) continue;
    const auto& other = records[static_cast<std::size_t>(fewest - optimizers.begin())];
    const auto numbers = private_ones(records[i], optimizers[i], other, *fewest);
    if (numbers.empty()) continue;
    const auto before = records[i].steps.size();
    leave_out(records[i], optimizers[i], numbers);
    notes.push_back(
        fmt::format("rank {} took {} steps with an optimizer that some ranks do not have: these "
                    "steps are not compared",
                    records[i].header.rank, before - records[i].steps.size()));
  }
  return notes;
}

}  // namespace ddp_doctor
