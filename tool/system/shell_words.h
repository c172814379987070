// SPDX-License-Identifier: BSD-3-Clause
// Words as a POSIX shell reads them, and as lists have them.
#pragma once

#include <string>
#include <vector>

namespace ddp_doctor {

// The parts between separators: the folders of PATH.
std::vector<std::string> split(const std::string& text, char separator);

// In single quotes.
std::string shell_quoted(const std::string& word);

// A command line to paste: each word is quoted only where it has to be.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace ddp_doctor
