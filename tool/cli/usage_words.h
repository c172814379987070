// SPDX-License-Identifier: BSD-3-Clause
// The words of a command line that ddp-doctor could not use, and what can be said of one of them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tool/cli/command.h"

namespace ddp_doctor {

using Words = std::vector<std::string>;

struct Advice {
  std::string text;
  std::string option = {};  // the unknown one that it is about
  std::string own = {};     // the end of `text`: what to do if this is the program's own
};

inline constexpr char kUnexpected[] = "unexpected argument ";
inline constexpr char kNoArguments[] = ", and a TorchScript program takes no arguments; remove it";

bool is_flag(const std::string& word);
// "--epochs" of "--epochs=3".
std::string name_of_flag(const std::string& word);
bool takes_value(const CLI::Option& option);
// The flag of `command`, or of those that stand before every command; null if it has none.
const CLI::Option* find_flag(const CLI::App& command, const std::string& name);

bool is_program(const std::string& word);
// A TorchScript program, or one of its strategies: "script.pt@ddp".
bool is_script(const std::string& word);

// "unknown option --epochs", "unexpected argument 3"
std::string unknown(const Words& words);
std::string after_dashes(const std::string& line);

// Of the commands that take one program, and of those that take several operands or none; nothing
// where every word is known.
std::optional<Advice> advice_about_program(const CLI::App& command, const Call& call);
std::optional<Advice> advice_about_operands(const CLI::App& command, const Call& call);

}  // namespace ddp_doctor
