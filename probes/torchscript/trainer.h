// SPDX-License-Identifier: BSD-3-Clause
// The training loop of one rank.
#pragma once

#include "probes/torchscript/options.h"
#include "probes/torchscript/program.h"

namespace ddp_doctor {

// Trains `program` as `options` say and records it. Returns a worker_exit code; throws Error if it
// could not start or could not record. After kRaised the process must end by _exit: the process
// group may wait for lost peers.
int train(Program& program, const WorkerOptions& options);

}  // namespace ddp_doctor
