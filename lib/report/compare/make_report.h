// SPDX-License-Identifier: BSD-3-Clause
// From runs to the report of an examination: the findings of the first, compared with the others.
#pragma once

#include <functional>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// Findings of the first run; proofs from the others.
Report make_report(std::vector<RunReport> runs);
// Keeps the findings for which `wanted` is true. A consequence whose cause is removed becomes a
// root cause.
void select_findings(Report& report, const std::function<bool(const Finding&)>& wanted);

}  // namespace ddp_doctor
