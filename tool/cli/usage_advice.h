// SPDX-License-Identifier: BSD-3-Clause
// Answers a command line that ddp-doctor cannot use with the one that was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tool/cli/command.h"

namespace ddp_doctor {

// For `run`, `check` and `bisect`: the error message where the command line has flags of another
// launcher, misspelt flags, a command without "--", or the program's own arguments before "--";
// nothing where it has none of these.
std::optional<std::string> usage_advice(const CLI::App& command, const Call& call);

// The same for the commands that take several operands, or none: the first word that is not theirs,
// and the command line that was probably meant.
std::optional<std::string> operand_advice(const CLI::App& command, const Call& call);

// For those of them that take a program in Python: throws that message where it was given flags
// that are only for TorchScript programs.
void refuse_script_flags(const CLI::App& command, const Call& call);

// What `explain` answers to words that are no rule: a log, a program, an error message.
std::string explain_advice(std::vector<std::string> words);

}  // namespace ddp_doctor
