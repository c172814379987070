// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/help.h"

#include <sstream>
#include <string>

#include "tool/cli/command_line.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kHelpWidth = 100;

std::string in_columns(const std::string& text, std::size_t width) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::size_t used = 0;
    if (!result.empty()) result += '\n';
    for (std::string word; words >> word;) {
      const bool fits = used + 1 + word.size() <= width;
      if (used > 0) result += fits ? ' ' : '\n';
      used = used > 0 && fits ? used + 1 + word.size() : word.size();
      result += word;
    }
  }
  return result;
}

class WrappedHelp : public CLI::Formatter {
  // Without CLI11's names of types and checks.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return positional ? described(*option).takes : Formatter::make_option_name(option, false);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const Flag flag = described(*option);
    return (flag.takes.empty() || flag.names.empty() ? "" : " " + flag.takes) +
           (flag.repeatable ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const Flag flag = described(*option);
    const std::string text = flag.help + (flag.fallback.empty() ? "" : " [" + flag.fallback + "]");
    return in_columns(text, kHelpWidth - get_column_width());
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    const Flag flag = described(*option);
    const std::string text = flag.takes + (flag.repeatable ? " ..." : "");
    return flag.required ? text : "[" + text + "]";
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> wrapped_help() {
  auto help = std::make_shared<WrappedHelp>();
  help->label("Positionals", "Arguments");
  help->label("SUBCOMMAND", "COMMAND");
  return help;
}

}  // namespace ddp_doctor
