// SPDX-License-Identifier: BSD-3-Clause
// One run of a program whose ranks are started here, or of a command that starts them.
#pragma once

#include <filesystem>
#include <functional>

#include "lib/record/run_info.h"
#include "tool/system/streams.h"
#include "tool/watch/program_options.h"

namespace ddp_doctor {

// Completes `run` and leaves it, beside the ranks' records, in `folder`; run.failure says why there
// is nothing to examine. Throws Error if there is no such program, Interrupted at a second Ctrl-C.
// What the program writes goes to `streams.err`.
void run_program(RunInfo& run, const ProgramOptions& options, const std::filesystem::path& folder,
                 Streams streams, const std::function<void(std::int64_t step)>& on_step = {});

}  // namespace ddp_doctor
