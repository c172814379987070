// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/usage_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "tool/cli/program_flags.h"
#include "tool/cli/usage_words.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

// The line for a command that has the flag `args[at]`: with all words where it takes them.
std::string line_of(const CLI::App& other, const Call& call, std::size_t at) {
  Words all = {"ddp-doctor", other.get_name()}, alone = all;
  std::size_t programs = call.words ? 1 : 0;
  bool fits = true;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const std::string& word = call.args[i];
    const bool valued = is_flag(word) && word.find('=') == std::string::npos &&
                        i + 1 < call.args.size() && !is_program(call.args[i + 1]);
    const auto* option = is_flag(word) ? find_flag(other, name_of_flag(word)) : nullptr;
    const std::size_t next = i + (option != nullptr && valued && takes_value(*option) ? 2 : 1);
    fits = fits && (option != nullptr || is_program(word));
    programs += is_flag(word) || call.words ? 0 : 1;
    const auto begin = call.args.begin();
    const Words piece(begin + static_cast<std::ptrdiff_t>(i),
                      begin + static_cast<std::ptrdiff_t>(next));
    all.insert(all.end(), piece.begin(), piece.end());
    if (i == at) alone.insert(alone.end(), piece.begin(), piece.end());
    i = next - 1;
  }
  Words& line = fits && programs < 2 ? all : alone;
  if (programs == 0 || &line == &alone) line.emplace_back("train.py");
  if (call.words && &line == &all) {
    line.emplace_back("--");
    line.insert(line.end(), call.words->begin(), call.words->end());
  }
  return shell_line(line);
}

// An unknown option may be one of another command that takes a program.
std::optional<std::string> with_other_commands(const CLI::App& command, const Call& call,
                                               const std::optional<Advice>& advice) {
  if (!advice) return {};
  const std::string& name = advice->option;
  const auto& args = call.args;
  const auto given = std::find_if(args.begin(), args.end(), [&](const std::string& word) {
    return name.starts_with("--") && name_of_flag(word) == name;
  });
  if (given == args.end() || find_flag(command, name) != nullptr) return advice->text;
  for (const auto* other : command.get_parent()->get_subcommands({})) {
    const auto* option = other->get_option_no_throw(name);
    if (option == nullptr || other->get_option_no_throw("program") == nullptr) continue;
    const bool value = given + 1 != args.end() && !is_flag(given[1]) && !is_program(given[1]);
    if (value && !takes_value(*option)) continue;  // "--model resnet" is the program's own
    std::string text =
        fmt::format("{} is an option of {}: {}", name, other->get_name(),
                    line_of(*other, call, static_cast<std::size_t>(given - args.begin())));
    if (!advice->own.empty() && std::any_of(args.begin(), given, is_program))
      text += "\nOr " + advice->own;
    return text;
  }
  return advice->text;
}

}  // namespace

std::optional<std::string> usage_advice(const CLI::App& command, const Call& call) {
  return with_other_commands(command, call, advice_about_program(command, call));
}

std::optional<std::string> operand_advice(const CLI::App& command, const Call& call) {
  return with_other_commands(command, call, advice_about_operands(command, call));
}

void refuse_script_flags(const CLI::App& command, const Call& call) {
  if (!was_any_given(command, kOnlyScripts)) return;
  if (const auto advice = operand_advice(command, call))
    throw CLI::ExtrasError(*advice, CLI::ExitCodes::ExtrasError);
}

}  // namespace ddp_doctor
