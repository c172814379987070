// SPDX-License-Identifier: BSD-3-Clause
// Rules that no run can show by itself, only a baseline beside it (lib/report/baseline.h). They
// stand in the table of all rules, with no function to ask.
#pragma once

#include "lib/diagnose/rule.h"

namespace ddp_doctor {

extern const Rule kNumericsChanged;  // DDP601
extern const Rule kGraphChanged;     // DDP602

}  // namespace ddp_doctor
