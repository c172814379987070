// SPDX-License-Identifier: BSD-3-Clause
// One run of a TorchScript program under one strategy, in processes of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lib/record/run_info.h"
#include "tool/launch/script_options.h"

namespace ddp_doctor {

class PreparedRanks;

// Completes `run` and leaves it, beside the ranks' records, in `folder`, an empty one. Throws
// Interrupted at a second Ctrl-C. `prepared` serves several runs. `on_step` may be empty.
void run_script(RunInfo& run, const ScriptOptions& options, const std::filesystem::path& folder,
                PreparedRanks& prepared, const std::function<void(std::int64_t step)>& on_step);

// Why there is no run to report: no rank could start the program, a record could not be written, or
// the worker does not run. A rank that was killed, or whose first pass failed while others' did
// not, is reported as a finding instead.
std::optional<std::string> why_not_run(const std::filesystem::path& folder, const RunInfo& run);

}  // namespace ddp_doctor
