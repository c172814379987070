// SPDX-License-Identifier: BSD-3-Clause
// DDP601 and DDP602: the run computes something else than its baseline.
// lib/report/gate/baseline.cpp finds these; a run alone cannot show them.

#include "lib/diagnose/rule.h"

namespace ddp_doctor {

const Rule kNumericsChanged = {.code = "DDP601",
                               .name = "numerics-changed",
                               .severity = Severity::kWarning,
                               .headline = "gradients or weights differ from the baseline",
                               .check = nullptr,
                               .on_mesh = OnMesh::kHolds};
const Rule kGraphChanged = {.code = "DDP602",
                            .name = "graph-changed",
                            .severity = Severity::kWarning,
                            .headline = "the loss uses other parameters than in the baseline",
                            .check = nullptr,
                            .on_mesh = OnMesh::kHolds};

}  // namespace ddp_doctor
