// SPDX-License-Identifier: BSD-3-Clause
// DDP601 and DDP602: the run computes something else than its baseline. lib/report/baseline.cpp
// finds these; a run alone cannot show them.

#include "lib/diagnose/baseline_rules.h"

namespace ddp_doctor {

const Rule kNumericsChanged = {"DDP601", "numerics-changed", Severity::kWarning,
                               "gradients or weights differ from the baseline", nullptr};
const Rule kGraphChanged = {"DDP602", "graph-changed", Severity::kWarning,
                            "the loss uses other parameters than in the baseline", nullptr};

}  // namespace ddp_doctor
