// SPDX-License-Identifier: BSD-3-Clause
// "Did you mean ...?" for the names of commands, flags, rules, strategies and demos.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ddp_doctor {

// The names in `known` that `word` was probably meant to be: those it is a letter or two away from,
// or begins. The nearest only; empty where none is near, or too many are equally near.
std::vector<std::string> meant_by(const std::string& word, const std::vector<std::string>& known);

// "; did you mean DDP101?" to append to a message, or nothing.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

// The same for the codes and names of rules.
std::string did_you_mean_rule(const std::string& word);

// The flags of `command` that the unknown flag `name` was probably meant to be; "-n" and what else
// other launchers call it is --nproc-per-node.
std::vector<std::string> meant_flags(const CLI::App& command, const std::string& name);

// What other launchers call --nproc-per-node, with dashes: "--nproc".
bool is_ranks_elsewhere(const std::string& flag);

// The first flag that `command` was given and does not know, and what was probably meant, as a
// message; nothing where no flag of the command resembles it.
std::optional<std::string> misspelt_flag(const CLI::App& command);

}  // namespace ddp_doctor
