// SPDX-License-Identifier: BSD-3-Clause
// Starts a program as a child process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tool/launch/launch.h"

namespace ddp_doctor {

class View;

// `command[0]` is the path of the executable, or of a script that the shell can run. It leads a
// process group of its own, reads nothing, writes to `output`, and is killed if ddp-doctor dies.
// It sees `view`, if there is one. Throws Error if it cannot be started.
pid_t start_process(const std::vector<std::string>& command, const Environment& environment,
                    int output, const View* view = nullptr);

}  // namespace ddp_doctor
