// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/diagnose.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <vector>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/in_cpp.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr char kShardsReduced[] =
    "the local gradients of sharded parameters are not seen before they are reduced";
constexpr char kNeedsAll[] = "it needs the records of all ranks together";

// Why there are fewer than `wanted` steps.
std::string too_few_steps(const Timeline& timeline, std::size_t wanted) {
  const bool nothing = std::none_of(timeline.tensors.begin(), timeline.tensors.end(),
                                    [](const auto& tensor) { return tensor.kind == "parameter"; });
  if (nothing) return "there is no parameter that every rank has";
  return wanted == 1 ? kNoCompleteStep : "fewer than two steps were completed by every rank";
}

Verdict check_rule(const Rule& rule, const Timeline& timeline) {
  const Needs& needs = rule.needs;
  if (needs.all_ranks && !timeline.whole()) return Undecidable{kNeedsAll};
  try {
    if (timeline.ranks().size() < needs.ranks)
      return Undecidable{"there is only one rank, nothing to compare"};
    if (needs.steps > 0 && complete_steps(timeline).size() < needs.steps)
      return Undecidable{too_few_steps(timeline, needs.steps)};
    return rule.check(timeline);
  } catch (const RecordError&) {
    throw;
  } catch (const std::exception& error) {
    return Undecidable{std::string("internal error, please report it: ") + error.what()};
  }
}

// The timelines that rules check, by scope.
class Views {
 public:
  explicit Views(const Timeline& job) : job_{&job}, sets_(job.replica_sets()) {
    for (const auto& set : sets_) models_.push_back(&set);
    if (sets_.empty()) models_ = job_;
    for (const auto* model : models_) parts_.push_back(model->parts());
    for (std::size_t i = 0; i < models_.size(); ++i) {
      for (const auto& part : parts_[i]) wrappers_.push_back(&part);
      if (parts_[i].empty()) wrappers_.push_back(models_[i]);
    }
  }
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  const std::vector<const Timeline*>& of(Scope scope) const {
    return scope == Scope::kJob ? job_ : scope == Scope::kModel ? models_ : wrappers_;
  }

 private:
  std::vector<const Timeline*> job_, models_, wrappers_;
  std::vector<Timeline> sets_;
  std::vector<std::vector<Timeline>> parts_;
};

// The same on other ranks, which train a model of their own.
bool joins(std::vector<Finding>& findings, const Finding& finding) {
  const auto same = std::find_if(findings.begin(), findings.end(), [&](const Finding& other) {
    return other.message == finding.message && other.first_step == finding.first_step;
  });
  if (same == findings.end()) return false;
  std::set<int> ranks(same->ranks.begin(), same->ranks.end());
  ranks.insert(finding.ranks.begin(), finding.ranks.end());
  same->ranks.assign(ranks.begin(), ranks.end());
  return true;
}

// The findings in any of the timelines; undecidable only if all of them are.
Verdict check_all(const Rule& rule, const std::vector<const Timeline*>& timelines) {
  if (timelines.size() == 1) return check_rule(rule, *timelines.front());
  std::vector<Finding> findings;
  std::optional<Undecidable> undecidable;
  bool decided = false;
  for (const auto* part : timelines) {
    Verdict verdict = check_rule(rule, *part);
    if (auto* reason = std::get_if<Undecidable>(&verdict)) {
      undecidable = *reason;
      continue;
    }
    decided = true;
    for (auto& finding : std::get<std::vector<Finding>>(verdict)) {
      // All parameters of a part are not all parameters of the run.
      if (finding.parameters.empty()) finding.parameters = parameters_of(*part, part->trainable());
      if (!joins(findings, finding)) findings.push_back(std::move(finding));
    }
  }
  if (!decided && undecidable) return *undecidable;
  return findings;
}

}  // namespace

Diagnosis diagnose(const Timeline& timeline, int run) {
  Diagnosis diagnosis;
  std::vector<Finding> findings;
  const Views views(timeline);
  const auto* record = timeline.ranks().empty() ? nullptr : timeline.record(timeline.first_rank());
  const bool cpp = record != nullptr && record->header.probe == "cpp";
  for (const Rule* entry : all_rules()) {
    const Rule& rule = *entry;
    if (rule.check == nullptr) continue;  // it compares with a baseline
    Verdict verdict = check_all(rule, views.of(rule.scope));
    if (const auto* undecidable = std::get_if<Undecidable>(&verdict)) {
      const bool alone = !timeline.whole() && timeline.ranks().size() < 2;
      diagnosis.not_checked.push_back({rule.code, alone ? kNeedsAll : undecidable->reason});
      continue;
    }
    auto& found = std::get<std::vector<Finding>>(verdict);
    if (found.empty() && rule.of_reductions && timeline.layout.reduces_into_shards) {
      diagnosis.not_checked.push_back({rule.code, kShardsReduced});
      continue;
    }
    const std::string& parallel = timeline.layout.model_parallel;
    const bool holds = rule.on_mesh == OnMesh::kHolds ||
                       std::all_of(found.begin(), found.end(), [&](const Finding& finding) {
                         return !rule.holds_on_mesh.empty() &&
                                finding.evidence.value("kind", "") == rule.holds_on_mesh;
                       });
    if (!parallel.empty() && !found.empty() && !holds) {
      diagnosis.not_checked.push_back(
          {rule.code, "differences between ranks may be intended: " + parallel});
      if (rule.severity == Severity::kError && rule.on_mesh == OnMesh::kUndecided)
        diagnosis.undecided.emplace_back(rule.code);
      continue;
    }
    diagnosis.checked.emplace_back(rule.code);
    for (auto& finding : found) {
      finding.run = run;
      if (cpp) {
        finding.message = in_cpp(std::move(finding.message));
        finding.prescription.text = in_cpp(std::move(finding.prescription.text));
      }
      if (finding.where && finding.where->file.empty()) finding.where.reset();  // not from Python
      findings.push_back(std::move(finding));
    }
  }
  diagnosis.findings = nest_consequences(std::move(findings));
  return diagnosis;
}

std::vector<Finding> lasting(std::vector<Finding> findings) {
  std::erase_if(findings, [](const Finding& finding) {
    return finding.certainty != Certainty::kCertain || finding.severity < Severity::kWarning ||
           !rule_of(finding).lasting;
  });
  return findings;
}

}  // namespace ddp_doctor
