// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "lib/parity/judge.h"
#include "lib/report/value/report.h"

namespace ddp_doctor {

// Adds to the ranks' run what the comparison with one process showed.
void add_parity(RunReport& run, Parity parity);

// Errors of the ranks' run that such a comparison would not explain: the ranks do not agree among
// themselves, so there is nothing to compare.
bool ranks_disagree(const RunReport& run);

}  // namespace ddp_doctor
