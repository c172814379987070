// SPDX-License-Identifier: BSD-3-Clause
// Native stacks of processes, from eu-stack (elfutils) or gdb, if one of them is installed and may
// attach.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>

namespace ddp_doctor {

// Writes the stack of each process's main thread to its file. Takes a few seconds at most, and
// omits the stacks that are not available by then.
void write_native_stacks(const std::map<std::filesystem::path, pid_t>& processes);

}  // namespace ddp_doctor
