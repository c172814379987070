// SPDX-License-Identifier: BSD-3-Clause
// Completion scripts for shells.
#pragma once

#include <string>

#include "tool/cli/command_line.h"

namespace ddp_doctor {

std::string bash_completion(const CommandLine& line);
std::string zsh_completion(const CommandLine& line);
std::string fish_completion(const CommandLine& line);

}  // namespace ddp_doctor
