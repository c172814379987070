// SPDX-License-Identifier: BSD-3-Clause
// Which finding explains which: one bug shows several symptoms, and only its root cause is reported
// as a finding of its own.
#pragma once

#include <functional>
#include <vector>

#include "lib/diagnose/finding.h"

namespace ddp_doctor {

// Nests each finding under the first one that explains it, and sorts the rest: most severe first,
// then by code.
std::vector<Finding> nest_consequences(std::vector<Finding> findings);

// The reverse: a list of all, each before its consequences.
std::vector<Finding> flattened(const std::vector<Finding>& findings);

// The first that is wanted, a consequence too; null if there is none.
const Finding* find_finding(const std::vector<Finding>& findings,
                            const std::function<bool(const Finding&)>& wanted);

}  // namespace ddp_doctor
