// SPDX-License-Identifier: BSD-3-Clause
// The command line as a function, so that tests run whole command lines in-process.
#pragma once

#include <string>
#include <vector>

#include "tool/system/streams.h"

namespace ddp_doctor {

// Runs `ddp-doctor ARGS...` and returns its exit code; never throws.
int run_doctor(std::vector<std::string> args, Streams streams);

}  // namespace ddp_doctor
