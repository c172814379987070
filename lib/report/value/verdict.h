// SPDX-License-Identifier: BSD-3-Clause
// What every format says about a report as a whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// A run whose findings count, and these findings.
struct Judged {
  const RunReport& run;
  const std::vector<Finding>& findings;
};
// The examined run; in a comparison, each of them.
std::vector<Judged> judged_runs(const Report& report);

// "sick: DDP201 unused-parameters and 1 more"; in a comparison, "a.py: sick; b.py: healthy".
// `fail_on`: with advice, the verdict tells if only advice fails the gate.
std::string verdict_of(const Report& report, std::optional<Severity> fail_on = {});

// "torch 2.15.0", "LibTorch 1.13.1"
std::string torch_of(const Report& report);

// What to do about suppressions that do not match, a sentence each.
std::vector<std::string> remarks_on_suppressions(const Report& report);

// "Weights differ ... It leads to DDP301 weights-drift." On one line.
std::string message_with_consequences(const Finding& finding);

}  // namespace ddp_doctor
