// SPDX-License-Identifier: BSD-3-Clause
// The manual page, in roff: the --help of every command.
#pragma once

#include <string>

#include "tool/cli/command_line.h"

namespace ddp_doctor {

// ddp-doctor(1).
std::string man_page(const CommandLine& line);

}  // namespace ddp_doctor
