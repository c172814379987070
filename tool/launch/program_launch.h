// SPDX-License-Identifier: BSD-3-Clause
// The user's own program in Python, or a command that starts it, with the probe attached through
// the environment, and nothing else changed unless a strategy is to be applied.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/record/run_info.h"
#include "lib/report/value/report.h"
#include "tool/launch/launch.h"
#include "tool/launch/unprobed.h"
#include "tool/watch/program_options.h"

namespace ddp_doctor {

// What is executed: the interpreter and the program, or the command by its path, with the
// arguments. Throws Error if there is no such thing.
std::vector<std::string> words_to_execute(const ProgramOptions& options);

// As the user wrote it.
std::string name_of_program(const ProgramOptions& options);

// What is known of the run before it begins, added to `run`.
void describe_run(RunInfo& run, const ProgramOptions& options,
                  const std::vector<std::string>& command);

// The environment that brings the probe into every Python process that inherits it; `folder` is the
// run's. Throws Error if this installation has no probe for Python.
Environment with_probe(Environment environment, const ProgramOptions& options,
                       const std::filesystem::path& folder);

// Completes `run` from its folder and how it ended: world size, exits of ranks that were not
// observed, notes, and the failure if nothing could be examined. `torch`: processes that were seen.
void settle(RunInfo& run, const std::filesystem::path& folder, const Launched& launched,
            const TorchProcesses& torch, const ProgramOptions& options);

// Throws Error if the run is a failure.
RunReport report_program(const std::filesystem::path& folder, const RunInfo& run, int index);

}  // namespace ddp_doctor
