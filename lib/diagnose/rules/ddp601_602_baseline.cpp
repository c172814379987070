// SPDX-License-Identifier: BSD-3-Clause
// DDP601 and DDP602: another computation than that of a baseline. A run cannot show these by
// itself: lib/report/baseline.cpp finds them.

#include "lib/diagnose/baseline_rules.h"

namespace ddp_doctor {

const Rule kNumericsChanged = {"DDP601", "numerics-changed", Severity::kWarning,
                               "gradients or weights are not those of the baseline", nullptr};
const Rule kGraphChanged = {"DDP602", "graph-changed", Severity::kWarning,
                            "other parameters take part in the loss than in the baseline", nullptr};

}  // namespace ddp_doctor
