// SPDX-License-Identifier: BSD-3-Clause
// Answers a command line that ddp-doctor cannot use with the one that was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "tool/cli/command.h"

namespace ddp_doctor {

// For `run`, `check` and `bisect`: the error message where the command line has flags of another
// launcher, misspelt flags, a command without "--", or the program's own arguments before "--";
// nothing where it has none of these.
std::optional<std::string> usage_advice(const CLI::App& command, const Call& call);

// The same for the commands that take several operands, or none: the first word that is not theirs,
// and the command line that was probably meant.
std::optional<std::string> operand_advice(const CLI::App& command, const Call& call);

}  // namespace ddp_doctor
