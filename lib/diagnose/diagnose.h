// SPDX-License-Identifier: BSD-3-Clause
// From a timeline to findings: every rule checks it, then consequences are nested under their
// causes.
#pragma once

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// A rule that throws becomes "not checked" with its reason; the others are unaffected.
Diagnosis diagnose(const Timeline& timeline, int run = 0);

// Of the root causes, those that may be announced while the program runs, since no later step can
// withdraw them: at least a warning, certain, and of a lasting rule.
std::vector<Finding> lasting(std::vector<Finding> findings);

}  // namespace ddp_doctor
