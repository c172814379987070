// SPDX-License-Identifier: BSD-3-Clause
// GoogleTest matchers for what an examination found:
//
//   EXPECT_THAT(ddp_doctor::check_records(folder), ddp_doctor::IsInSync());
//   EXPECT_THAT(ddp_doctor::check_records(folder), ddp_doctor::HasFinding("DDP101"));
//
// They need GoogleMock, which the including project brings. A failure shows the report.
#pragma once

#include <ddp_doctor/check.h>
#include <gmock/gmock.h>

#include <ostream>
#include <string>

namespace ddp_doctor {

// What GoogleTest prints for the value of a failed expectation: the matchers show the report.
inline void PrintTo(const Check& check, std::ostream* out) {
  *out << check.findings.size() << " findings in " << check.steps << " steps of "
       << check.world_size << " ranks";
}

// Several ranks were compared for at least one step, bit for bit, and nothing is wrong with them.
MATCHER(IsInSync, negation ? "is out of sync" : "is in sync") {
  if (arg.steps == 0) *result_listener << "nothing was compared; ";
  *result_listener << "the report:\n" << arg.report;
  return arg.in_sync();
}

// A rule by its code or name ("DDP101", "wrapper-bypassed") applied, as a cause or a consequence.
MATCHER_P(HasFinding, code_or_name,
          std::string(negation ? "has no finding " : "has the finding ") + code_or_name) {
  *result_listener << "the report:\n" << arg.report;
  return arg.find(code_or_name) != nullptr;
}

// Likewise, and it names this parameter.
MATCHER_P2(HasFindingIn, code_or_name, parameter,
           std::string(negation ? "has no finding " : "has the finding ") + code_or_name + " in " +
               parameter) {
  *result_listener << "the report:\n" << arg.report;
  const Finding* finding = arg.find(code_or_name);
  if (finding == nullptr) return false;
  for (const auto& named : finding->parameters) {
    if (named.name == parameter) return true;
  }
  return false;
}

}  // namespace ddp_doctor
