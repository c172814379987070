// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/causes.h"

#include <algorithm>
#include <string_view>

namespace ddp_doctor {
namespace {

struct Relation {
  std::string_view cause;
  std::string_view effect;
  // The kind of the effect (evidence "kind") that this cause explains; empty: any.
  std::string_view kind = "";
  // The kind of the cause that explains it; empty: any.
  std::string_view cause_kind = "";
};

// In order of preference: causes that act earlier in a step come first.
constexpr Relation kRelations[] = {
    // Ranks with different models differ in everything else.
    {"DDP306", "DDP102"},
    {"DDP306", "DDP104"},
    {"DDP306", "DDP111"},
    {"DDP306", "DDP202"},
    {"DDP306", "DDP301"},
    {"DDP306", "DDP302"},
    {"DDP306", "DDP501"},
    {"DDP306", "DDP502"},
    {"DDP306", "DDP504"},
    // A wrapper would also have broadcast rank 0's weights and buffers.
    {"DDP102", "DDP302", "", "never-synchronized"},
    {"DDP102", "DDP303", "", "never-synchronized"},
    // Replicas that start different stay different, and their gradients differ without any
    // synchronization bug.
    {"DDP302", "DDP301"},
    // The reducer waits for parameters that no longer exist, and never finishes.
    {"DDP105", "DDP102"},
    {"DDP105", "DDP104"},
    {"DDP105", "DDP106"},
    {"DDP105", "DDP201"},
    {"DDP105", "DDP202"},
    {"DDP105", "DDP301"},
    {"DDP105", "DDP302", "after-wrapping"},
    {"DDP105", "DDP302", "late"},
    {"DDP106", "DDP302", "late"},
    {"DDP105", "DDP307"},
    {"DDP105", "DDP504", "unfinished-reduction"},
    // One rank's result of the reduction is wrong.
    {"DDP115", "DDP102"},
    {"DDP115", "DDP104"},
    {"DDP115", "DDP301"},
    // No reduction, or not of all parameters, or not on all ranks: gradients are local, so weights
    // diverge.
    {"DDP101", "DDP102"},
    {"DDP101", "DDP104"},
    {"DDP101", "DDP301"},
    {"DDP103", "DDP102"},
    {"DDP103", "DDP104"},
    {"DDP103", "DDP301"},
    {"DDP109", "DDP102"},
    {"DDP109", "DDP104"},
    {"DDP109", "DDP301"},
    {"DDP110", "DDP102"},
    {"DDP110", "DDP104"},
    {"DDP110", "DDP301"},
    {"DDP111", "DDP102"},
    {"DDP111", "DDP104"},
    {"DDP111", "DDP202"},
    {"DDP111", "DDP203"},
    {"DDP111", "DDP301"},
    {"DDP111", "DDP501"},
    {"DDP111", "DDP502"},
    {"DDP111", "DDP503"},
    {"DDP111", "DDP504"},
    {"DDP112", "DDP102"},
    {"DDP112", "DDP104"},
    {"DDP112", "DDP301"},
    {"DDP302", "DDP114"},
    {"DDP307", "DDP114"},
    {"DDP103", "DDP114"},
    {"DDP103", "DDP201"},
    {"DDP103", "DDP208"},
    {"DDP101", "DDP114"},
    {"DDP106", "DDP114"},
    {"DDP114", "DDP102"},
    {"DDP114", "DDP104"},
    {"DDP114", "DDP112"},
    {"DDP114", "DDP301"},
    {"DDP403", "DDP102"},
    {"DDP403", "DDP301"},
    {"DDP403", "DDP304"},
    {"DDP403", "DDP108"},  // unscaled by another scale
    {"DDP304", "DDP301"},
    {"DDP305", "DDP301"},
    // The optimizer's own copies of the weights are trained nowhere.
    {"DDP307", "DDP302", "untrained"},
    {"DDP307", "DDP201"},
    {"DDP307", "DDP208"},
    // The reducer marks a parameter as ready twice.
    {"DDP205", "DDP102"},
    {"DDP205", "DDP104"},
    {"DDP205", "DDP204"},
    {"DDP205", "DDP301"},
    {"DDP205", "DDP504", "marked-twice"},
    // The reducer never finishes: every gradient of the step stays local, the next forward raises.
    {"DDP202", "DDP102"},
    {"DDP202", "DDP104"},
    {"DDP202", "DDP203"},
    {"DDP202", "DDP206"},
    {"DDP202", "DDP301"},
    {"DDP202", "DDP504", "unfinished-reduction"},
    {"DDP202", "DDP504", "static-graph"},
    {"DDP202", "DDP501"},
    {"DDP202", "DDP502"},
    {"DDP202", "DDP503"},
    {"DDP202", "DDP505"},
    {"DDP201", "DDP102"},
    {"DDP201", "DDP104"},
    {"DDP201", "DDP203"},
    {"DDP201", "DDP301"},
    {"DDP201", "DDP504", "unfinished-reduction"},
    {"DDP203", "DDP102"},
    {"DDP203", "DDP104"},
    {"DDP203", "DDP301"},
    {"DDP206", "DDP102"},
    {"DDP206", "DDP203"},
    {"DDP206", "DDP301"},
    {"DDP206", "DDP504", "unfinished-reduction"},
    {"DDP206", "DDP504", "static-graph"},
    // The rest: some parameters are not averaged, then all of them, then weights diverge.
    {"DDP106", "DDP104"},
    {"DDP106", "DDP102"},
    {"DDP106", "DDP301"},
    {"DDP104", "DDP102"},
    {"DDP104", "DDP301"},
    {"DDP102", "DDP301"},
    {"DDP102", "DDP501"},
    // A rank that waits forever is terminated, or loses its peer.
    {"DDP501", "DDP504"},
    {"DDP502", "DDP504"},
    {"DDP503", "DDP504"},
    {"DDP505", "DDP504"},
};

bool explains(const Finding& cause, const Finding& effect) {
  // Advice describes a healthy run; it causes nothing.
  if (cause.severity == Severity::kAdvice) return false;
  if (cause.first_step && effect.first_step && *cause.first_step > *effect.first_step) return false;
  return std::any_of(std::begin(kRelations), std::end(kRelations), [&](const Relation& relation) {
    return relation.cause == cause.rule && relation.effect == effect.rule &&
           (relation.kind.empty() || effect.evidence.value("kind", "") == relation.kind) &&
           (relation.cause_kind.empty() || cause.evidence.value("kind", "") == relation.cause_kind);
  });
}

}  // namespace

std::vector<Finding> nest_consequences(std::vector<Finding> findings) {
  // In a chain (302 -> 102 -> 301) everything is nested under the first: the cause that no other
  // finding explains.
  const auto is_root = [&](const Finding& finding) {
    return std::none_of(findings.begin(), findings.end(),
                        [&](const Finding& other) { return explains(other, finding); });
  };
  std::vector<Finding> roots;
  std::vector<Finding> effects;
  for (const auto& finding : findings) (is_root(finding) ? roots : effects).push_back(finding);

  std::stable_sort(roots.begin(), roots.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    return a.rule < b.rule;
  });
  for (const auto& effect : effects) {
    auto cause = std::find_if(roots.begin(), roots.end(),
                              [&](const Finding& root) { return explains(root, effect); });
    if (cause == roots.end()) {
      // Its cause is itself an effect: nest it next to that one.
      cause = std::find_if(roots.begin(), roots.end(), [&](const Finding& root) {
        return std::any_of(effects.begin(), effects.end(), [&](const Finding& middle) {
          return explains(root, middle) && explains(middle, effect);
        });
      });
    }
    if (cause != roots.end()) {
      cause->consequences.push_back(effect);
    } else {
      roots.push_back(effect);
    }
  }
  return roots;
}

}  // namespace ddp_doctor
