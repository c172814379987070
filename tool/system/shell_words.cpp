// SPDX-License-Identifier: BSD-3-Clause
#include "tool/system/shell_words.h"

#include <sstream>

namespace ddp_doctor {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

namespace {

bool is_plain(const std::string& word) {
  return !word.empty() && word.find_first_of(" \t\n\"'\\$`*?;&|<>()") == std::string::npos;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  std::string safe;
  for (const char letter : word) safe += letter == '\'' ? "'\\''" : std::string(1, letter);
  return "'" + safe + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words)
    line += (line.empty() ? "" : " ") + (is_plain(word) ? word : shell_quoted(word));
  return line;
}

}  // namespace ddp_doctor
