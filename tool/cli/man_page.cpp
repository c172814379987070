// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/man_page.h"

#include <fmt/format.h>

#include <sstream>

#include "lib/version.h"

namespace ddp_doctor {
namespace {

// A hyphen in a name must be searchable and copyable: \-, not a typographic hyphen.
std::string hyphenated(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '-') {
      safe += "\\-";
    } else if (letter == '\\') {
      safe += "\\e";
    } else {
      safe += letter;
    }
  }
  return safe;
}

// Its lines as lines; none of them is taken for a request.
std::string prose(const std::string& text) {
  std::string safe;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!safe.empty()) safe += ".br\n";
    safe +=
        (line.starts_with('.') || line.starts_with('\'') ? "\\&" : "") + hyphenated(line) + '\n';
  }
  return safe;
}

std::string entry(const Flag& flag) {
  std::string tag;
  for (const auto& each : flag.names)
    tag += fmt::format("{}\\fB{}\\fR", tag.empty() ? "" : ", ", hyphenated(each));
  if (!flag.takes.empty())
    tag += fmt::format("{}\\fI{}\\fR", tag.empty() ? "" : " ", hyphenated(flag.takes));
  std::string text = fmt::format(".TP\n{}\n{}", tag, prose(flag.help));
  std::string more = flag.limits;
  if (!flag.fallback.empty()) more += (more.empty() ? "" : "; ") + ("default " + flag.fallback);
  if (!flag.variable.empty()) more += (more.empty() ? "" : "; ") + ("$" + flag.variable);
  if (!more.empty()) text += (flag.help.empty() ? "" : ".br\n") + prose("(" + more + ")");
  return text;
}

std::string section(const CommandLine& command) {
  std::string text = fmt::format(".SS {}\n{}", command.name, prose(command.summary + "."));
  text += ".P\n\\fBddp\\-doctor " + command.name + "\\fR [\\fIoptions\\fR]";
  for (const auto& operand : command.operands) {
    const std::string what =
        fmt::format("\\fI{}\\fR{}", hyphenated(operand.takes), operand.repeatable ? " ..." : "");
    text += operand.required ? " " + what : " [" + what + "]";
  }
  text += '\n';
  for (const auto& operand : command.operands) text += entry(operand);
  std::string group = "Options";
  for (const auto& flag : command.flags) {
    if (flag.group != group) text += fmt::format(".P\n{}", prose(flag.group + ":"));
    group = flag.group;
    text += entry(flag);
  }
  return text;
}

}  // namespace

std::string man_page(const CommandLine& line) {
  std::string text = fmt::format(
      ".\\\" Made from its command line by `ddp-doctor generate man`.\n"
      ".TH DDP\\-DOCTOR 1 \"\" \"ddp\\-doctor {}\" \"User Commands\"\n"
      ".SH NAME\nddp\\-doctor \\- tells whether data\\-parallel training really synchronizes\n"
      ".SH SYNOPSIS\n\\fBddp\\-doctor\\fR \\fIcommand\\fR [\\fIoptions\\fR] [\\fIprogram\\fR]"
      " [\\fB\\-\\-\\fR \\fIits arguments\\fR]\n"
      ".SH DESCRIPTION\n{}.SH OPTIONS\n",
      hyphenated(kVersion), prose(line.summary));
  for (const auto& flag : line.flags) text += entry(flag);
  text += ".SH COMMANDS\n";
  for (const auto& command : line.commands) text += section(command);
  text += ".SH EXIT STATUS AND DEFAULTS\n" + prose(line.footer);
  text += ".SH SEE ALSO\n" +
          prose("ddp-doctor rules lists the rules, ddp-doctor explain CODE explains one.");
  return text;
}

}  // namespace ddp_doctor
