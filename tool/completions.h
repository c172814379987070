// SPDX-License-Identifier: BSD-3-Clause
// What completes a command line in a shell, as that shell reads it.
#pragma once

#include <string>

#include "tool/command_line.h"

namespace ddp_doctor {

std::string bash_completion(const CommandLine& line);
std::string zsh_completion(const CommandLine& line);
std::string fish_completion(const CommandLine& line);

}  // namespace ddp_doctor
