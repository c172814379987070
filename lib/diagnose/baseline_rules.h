// SPDX-License-Identifier: BSD-3-Clause
// Rules that need a baseline in addition to a run (lib/report/gate/baseline.h). They are in the
// table of all rules, without a check function.
#pragma once

#include "lib/diagnose/rule.h"

namespace ddp_doctor {

extern const Rule kNumericsChanged;  // DDP601
extern const Rule kGraphChanged;     // DDP602

}  // namespace ddp_doctor
