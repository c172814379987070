// SPDX-License-Identifier: BSD-3-Clause
// What a parting of the ranks' call logs is.
#pragma once

#include "lib/diagnose/calls.h"
#include "lib/diagnose/divergence.h"

namespace ddp_doctor {

// Fills in reason, cause, culprits, parameters and place of a parting whose calls are known. False:
// it is a consequence of something else.
bool find_reason(const Timeline& timeline, const Logs& logs, Divergence& found);

}  // namespace ddp_doctor
