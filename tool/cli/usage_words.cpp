// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/usage_words.h"

#include <cctype>
#include <filesystem>

#include "tool/system/shell_words.h"

namespace ddp_doctor {

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

std::string name_of_flag(const std::string& word) { return word.substr(0, word.find('=')); }

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

const CLI::Option* find_flag(const CLI::App& command, const std::string& name) {
  if (const auto* option = command.get_option_no_throw(name)) return option;
  if (name == "--config") return command.get_parent()->get_option_no_throw(name);
  if (name.starts_with("--") || name.size() < 3) return nullptr;
  for (const char letter : name.substr(1)) {  // -qv
    const auto* option = command.get_option_no_throw(std::string("-") + letter);
    if (option == nullptr || takes_value(*option)) return nullptr;
  }
  return command.get_option_no_throw(name.substr(0, 2));
}

bool is_program(const std::string& word) {
  const auto extension = std::filesystem::path(word).extension();
  return extension == ".py" || extension == ".pt";
}

bool is_script(const std::string& word) {
  return std::filesystem::path(word.substr(0, word.find('@'))).extension() == ".pt";
}

std::string unknown(const Words& words) {
  return is_flag(words.front()) ? "unknown option " + name_of_flag(words.front())
                                : kUnexpected + shell_line({words.front()});
}

std::string after_dashes(const std::string& line) {
  return "put the program's own arguments after --" + (line.empty() ? "" : ": " + line);
}

}  // namespace ddp_doctor
