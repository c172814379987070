// SPDX-License-Identifier: BSD-3-Clause
// The lines of a source file of the user's.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ddp_doctor {

// Empty if it cannot be read, or is too large for one.
inline std::vector<std::string> lines_of(const std::string& file) {
  constexpr std::uintmax_t kMaxBytes = 4 << 20;
  std::error_code ignored;
  if (std::filesystem::file_size(file, ignored) > kMaxBytes) return {};
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace ddp_doctor
