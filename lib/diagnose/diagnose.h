// SPDX-License-Identifier: BSD-3-Clause
// From a timeline to findings: every rule checks it, then consequences are nested under their
// causes.
#pragma once

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// A rule that throws becomes "not checked" with its reason; the others are unaffected.
Diagnosis diagnose(const Timeline& timeline, int run = 0);

}  // namespace ddp_doctor
