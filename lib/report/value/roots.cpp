// SPDX-License-Identifier: BSD-3-Clause
// The record has roots of its own (record.h, Root), over everything that one rank saw, by its own
// ids, including tensors that only that rank has. These roots are by name, over the tensors in
// which a difference would be a finding.
#include "lib/report/value/roots.h"

#include <algorithm>
#include <map>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kNameLength = 16;  // hexadecimal digits that tell lists of tensors apart

std::string digest_of_text(const std::string& text) {
  const std::int64_t sizes[] = {static_cast<std::int64_t>(text.size())};
  constexpr std::int64_t kStrides[] = {1};
  return to_hex(digest({text.data(), DType::kUInt8, sizes, kStrides}).bits);
}

// Tensors in the order of their names, and the digest of names, types and sizes.
struct Tensors {
  std::vector<int> ids;
  std::string name;
};

Tensors described(const Timeline& timeline, std::vector<int> ids) {
  const auto tensor = [&](int id) -> const TensorInfo& {
    return timeline.tensors[static_cast<std::size_t>(id)];
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int a, int b) { return tensor(a).name < tensor(b).name; });
  std::string text;
  for (const int id : ids) {
    text += tensor(id).name + '\n' + tensor(id).dtype;
    for (const auto size : tensor(id).sizes) text += ' ' + std::to_string(size);
    text += '\n';
  }
  return {std::move(ids), digest_of_text(text).substr(0, kNameLength)};
}

// By ids: nearly all steps have the same ones.
using KnownTensors = std::map<std::vector<int>, Tensors>;

// Empty if the rank has none of them.
std::string root_of(const TimelineStep& step, int rank, const std::vector<int>& ids, Stage stage) {
  std::string text;
  bool any = false;
  for (const int id : ids) {
    const auto seen = step.find(rank, id, stage);
    any = any || seen;
    text += seen ? '+' : '-';
    if (seen) text.append(seen->bits.begin(), seen->bits.end());
  }
  return any ? digest_of_text(text) : std::string();
}

std::vector<RootGroup> groups_of(const Timeline& timeline, const TimelineStep& step, Stage stage,
                                 KnownTensors& known) {
  const auto ids = compared(timeline, step, stage);
  auto found = known.find(ids);
  if (found == known.end()) found = known.emplace(ids, described(timeline, ids)).first;
  const Tensors& tensors = found->second;
  std::map<std::string, std::vector<int>> by_root;
  if (step.same_everywhere(stage)) {
    by_root[root_of(step, timeline.first_rank(), tensors.ids, stage)] = timeline.ranks();
  } else {
    std::map<int, std::string> root;  // by the lowest rank that saw the same
    for (const int rank : timeline.ranks()) {
      const int like = step.like(rank, {Seen::kDigests, stage});
      if (like == rank) root[rank] = root_of(step, rank, tensors.ids, stage);
      by_root[root.at(like)].push_back(rank);
    }
  }
  by_root.erase("");
  std::vector<RootGroup> groups;
  for (const auto& [root, ranks] : by_root) groups.push_back({tensors.name, root, RankSet(ranks)});
  return groups;
}

}  // namespace

std::vector<StepRoots> roots_of(const Timeline& timeline) {
  std::vector<StepRoots> roots;
  KnownTensors known;
  for (const auto& step : timeline.steps) {
    const auto records = step.records();
    const bool looked_at = std::any_of(records.begin(), records.end(),
                                       [](const auto* rank) { return rank->examined; });
    if (!looked_at) continue;
    StepRoots here{step.number, {}, groups_of(timeline, step, Stage::kWeight, known)};
    if (step.number > 0) here.gradient = groups_of(timeline, step, Stage::kGradient, known);
    if (!here.gradient.empty() || !here.weight.empty()) roots.push_back(std::move(here));
  }
  return roots;
}

bool comparable(const std::vector<RootGroup>& groups) {
  return std::all_of(groups.begin(), groups.end(), [&](const RootGroup& group) {
    return group.tensors == groups.front().tensors;
  });
}

bool comparable(const std::vector<StepRoots>& roots) {
  return std::all_of(roots.begin(), roots.end(), [](const StepRoots& step) {
    return comparable(step.gradient) && comparable(step.weight);
  });
}

}  // namespace ddp_doctor
