// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/help.h"

#include <sstream>
#include <string>

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
  std::string make_option_desc(const CLI::Option* option) const override {
    return in_columns(Formatter::make_option_desc(option), kHelpWidth - get_column_width());
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string options = Formatter::make_option_opts(option);
    return options.substr(0, options.find(" (Env:"));
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> wrapped_help() { return std::make_shared<WrappedHelp>(); }

}  // namespace ddp_doctor
