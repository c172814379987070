// SPDX-License-Identifier: BSD-3-Clause
// Why the ranks' call logs diverge.
#pragma once

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"

namespace ddp_doctor {

// Fills in reason, cause, culprits, parameters and place of a divergence whose calls are known.
// False if it is a consequence of something else.
bool find_reason(const Timeline& timeline, const Logs& logs, Divergence& found);

}  // namespace ddp_doctor
