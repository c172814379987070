#include "lib/diagnose/causes.h"

#include <algorithm>
#include <string_view>

namespace ddp_doctor {
namespace {

struct Relation {
  std::string_view cause;
  std::string_view effect;
  // Of an effect that has several kinds (evidence "kind"): the kind that this cause explains.
  // Empty: any.
  std::string_view kind = "";
};

// In the order in which causes are preferred: what went wrong first in a step stands first.
constexpr Relation kRelations[] = {
    // Replicas that begin apart stay apart, and their gradients differ without any synchronization
    // bug.
    {"DDP302", "DDP301"},
    // No reduction at all: gradients are local, so weights part.
    {"DDP101", "DDP102"},
    {"DDP101", "DDP301"},
    // The reducer never finishes: every gradient of the step stays local, the next forward raises.
    {"DDP202", "DDP102"},
    {"DDP202", "DDP301"},
    {"DDP202", "DDP206"},
    {"DDP202", "DDP504", "unfinished-reduction"},
    {"DDP202", "DDP504", "static-graph"},
    {"DDP202", "DDP504", "stuck-collective"},
    {"DDP201", "DDP102"},
    {"DDP201", "DDP301"},
    {"DDP201", "DDP504", "unfinished-reduction"},
    {"DDP206", "DDP102"},
    {"DDP206", "DDP301"},
    {"DDP206", "DDP504", "unfinished-reduction"},
    {"DDP206", "DDP504", "static-graph"},
    // Local gradients move weights apart.
    {"DDP102", "DDP301"},
    {"DDP102", "DDP504", "stuck-collective"},
};

bool explains(const Finding& cause, const Finding& effect) {
  // Advice describes a healthy run; it is nobody's cause.
  if (cause.severity == Severity::kAdvice) return false;
  if (cause.first_step && effect.first_step && *cause.first_step > *effect.first_step) return false;
  return std::any_of(std::begin(kRelations), std::end(kRelations), [&](const Relation& relation) {
    return relation.cause == cause.rule && relation.effect == effect.rule &&
           (relation.kind.empty() || effect.evidence.value("kind", "") == relation.kind);
  });
}

}  // namespace

std::vector<Finding> nest_consequences(std::vector<Finding> findings) {
  // A chain (302 -> 102 -> 301) hangs everything on its first link: an effect goes to the cause
  // that nobody explains.
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
  for (auto& effect : effects) {
    auto cause = std::find_if(roots.begin(), roots.end(),
                              [&](const Finding& root) { return explains(root, effect); });
    if (cause == roots.end()) {
      // Its cause is itself an effect: hang it beside that one.
      cause = std::find_if(roots.begin(), roots.end(), [&](const Finding& root) {
        return std::any_of(effects.begin(), effects.end(), [&](const Finding& middle) {
          return explains(root, middle) && explains(middle, effect);
        });
      });
    }
    if (cause != roots.end()) {
      cause->consequences.push_back(std::move(effect));
    } else {
      roots.push_back(std::move(effect));
    }
  }
  return roots;
}

}  // namespace ddp_doctor
