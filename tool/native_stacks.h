// SPDX-License-Identifier: BSD-3-Clause
// Where processes are in native code, as eu-stack (elfutils) or gdb tell, where one of them is
// installed and allowed to look.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>

namespace ddp_doctor {

// Writes each one's main thread to the file that goes with it. Takes seconds at most, and leaves
// away what cannot be had by then.
void write_native_stacks(const std::map<std::filesystem::path, pid_t>& processes);

}  // namespace ddp_doctor
