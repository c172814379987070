// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/diagnose.h"

#include <exception>
#include <optional>
#include <vector>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr char kNeedsAll[] = "it needs the records of all ranks together";

Verdict ask(const Rule& rule, const Timeline& timeline) {
  if (rule.needs == Needs::kAllRanks && !timeline.whole()) return Undecidable{kNeedsAll};
  try {
    return rule.check(timeline);
  } catch (const RecordError&) {
    throw;
  } catch (const std::exception& error) {
    return Undecidable{std::string("the rule failed: ") + error.what()};
  }
}

// Of several parts: what any of them shows, and undecidable only if all are.
Verdict ask_each(const Rule& rule, const std::vector<Timeline>& parts) {
  std::vector<Finding> findings;
  std::optional<Undecidable> undecidable;
  bool decided = false;
  for (const auto& part : parts) {
    Verdict verdict = ask(rule, part);
    if (auto* reason = std::get_if<Undecidable>(&verdict)) {
      undecidable = *reason;
      continue;
    }
    decided = true;
    for (auto& finding : std::get<std::vector<Finding>>(verdict)) {
      // "All" of a part are not all of the run.
      if (finding.parameters.empty()) finding.parameters = parameters_of(part, part.trainable());
      findings.push_back(std::move(finding));
    }
  }
  if (!decided && undecidable) return *undecidable;
  return findings;
}

}  // namespace

Diagnosis diagnose(const Timeline& timeline, int run) {
  Diagnosis diagnosis;
  std::vector<Finding> findings;
  const auto parts = timeline.parts();
  for (const Rule& rule : all_rules()) {
    if (rule.check == nullptr) continue;  // baseline_rules.h
    const bool apart = rule.scope == Scope::kWrapper && !parts.empty();
    Verdict verdict = apart ? ask_each(rule, parts) : ask(rule, timeline);
    if (const auto* undecidable = std::get_if<Undecidable>(&verdict)) {
      const bool alone = !timeline.whole() && timeline.ranks().size() < 2;
      diagnosis.not_checked.push_back({rule.code, alone ? kNeedsAll : undecidable->reason});
      continue;
    }
    diagnosis.checked.emplace_back(rule.code);
    for (auto& finding : std::get<std::vector<Finding>>(verdict)) {
      finding.run = run;
      if (finding.where && finding.where->file.empty()) finding.where.reset();  // not from Python
      findings.push_back(std::move(finding));
    }
  }
  diagnosis.findings = nest_consequences(std::move(findings));
  return diagnosis;
}

}  // namespace ddp_doctor
