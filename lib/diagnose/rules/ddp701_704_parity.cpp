// SPDX-License-Identifier: BSD-3-Clause
// DDP701 to DDP704: the ranks compute something else than one process does on the same samples.
// lib/parity/causes.cpp finds these; a run alone cannot show them.

#include "lib/diagnose/rule.h"

namespace ddp_doctor {

const Rule kParityScale = {
    .code = "DDP701",
    .name = "parity-scale",
    .severity = Severity::kError,
    .headline = "the gradients are a multiple of those of one process on the same samples",
    .check = nullptr,
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kGradientScale}}};
const Rule kParityWeighting = {
    .code = "DDP702",
    .name = "parity-weighting",
    .severity = Severity::kWarning,
    .headline = "the ranks' samples weigh more or less than in one process",
    .check = nullptr,
    .on_mesh = OnMesh::kHolds};
const Rule kParityParameters = {
    .code = "DDP703",
    .name = "parity-parameters",
    .severity = Severity::kError,
    .headline = "the gradients of some parameters are not those of one process on the same samples",
    .check = nullptr,
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kGradientScale}}};
const Rule kParityForward = {
    .code = "DDP704",
    .name = "parity-forward",
    .severity = Severity::kWarning,
    .headline = "the forward computes something else than in one process on the same samples",
    .check = nullptr,
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kBatchnormLocal}}};

}  // namespace ddp_doctor
