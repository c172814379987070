// SPDX-License-Identifier: BSD-3-Clause
// Words as a POSIX shell reads them.
#pragma once

#include <string>
#include <vector>

namespace ddp_doctor {

// In single quotes.
std::string shell_quoted(const std::string& word);

// A command line to paste: each word is quoted only where it has to be.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace ddp_doctor
