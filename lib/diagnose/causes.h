// SPDX-License-Identifier: BSD-3-Clause
// Which finding explains which: one bug shows several symptoms, and only its root cause is reported
// as a finding of its own.
#pragma once

#include <vector>

#include "lib/diagnose/finding.h"

namespace ddp_doctor {

// Nests each finding under the first one that explains it, and sorts the rest: most severe first,
// then by code.
std::vector<Finding> nest_consequences(std::vector<Finding> findings);

}  // namespace ddp_doctor
