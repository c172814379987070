// SPDX-License-Identifier: BSD-3-Clause
// Why one process may be no reference for what the ranks computed.
#pragma once

#include <string>

#include "lib/parity/comparison.h"

namespace ddp_doctor {

// Whether one process computes something else on the same samples and weights in a later step: it
// counts its steps, or carries something from one to the next.
bool changes_with_steps(const ParityFigures& figures);

// Why one process is no reference, whatever the gradients are; empty if it is.
std::string unusable(const Comparison& comparison);

// Why a difference may not be the ranks'; empty if it is.
std::string doubt_about(const Comparison& comparison);

}  // namespace ddp_doctor
