#include "lib/diagnose/diagnose.h"

#include <exception>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

Verdict ask(const Rule& rule, const Timeline& timeline) {
  try {
    return rule.check(timeline);
  } catch (const std::exception& error) {
    return Undecidable{std::string("the rule failed: ") + error.what()};
  }
}

}  // namespace

Diagnosis diagnose(const Timeline& timeline, int run) {
  Diagnosis diagnosis;
  std::vector<Finding> findings;
  for (const Rule& rule : all_rules()) {
    Verdict verdict = ask(rule, timeline);
    if (const auto* undecidable = std::get_if<Undecidable>(&verdict)) {
      diagnosis.not_checked.push_back({rule.code, undecidable->reason});
      continue;
    }
    diagnosis.checked.emplace_back(rule.code);
    for (auto& finding : std::get<std::vector<Finding>>(verdict)) {
      finding.run = run;
      findings.push_back(std::move(finding));
    }
  }
  diagnosis.findings = nest_consequences(std::move(findings));
  return diagnosis;
}

}  // namespace ddp_doctor
