// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/completions.h"

#include <fmt/format.h>

#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

std::string all_names(const std::vector<Flag>& flags) {
  std::string names;
  for (const auto& flag : flags)
    for (const auto& name : flag.names) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::string escaped(const std::string& text, const std::string& special) {
  std::string safe;
  for (const char letter : text) {
    if (special.find(letter) != std::string::npos) safe += '\\';
    safe += letter;
  }
  return safe;
}

// Assignments to what _ddp_doctor offers.
std::string bash_values(const Values& values) {
  return fmt::format("words=\"{}\" kind={}", fmt::join(values.words, " "),
                     values.files     ? "-f"
                     : values.folders ? "-d"
                                      : "\"\"");
}

std::string bash_flags(const CommandLine& line) {
  std::string cases;
  for (const auto& flag : line.flags) {
    if (flag.takes.empty()) continue;
    std::string pattern;
    for (const auto& name : flag.names)
      pattern += fmt::format("{}{}:{}", pattern.empty() ? "" : "|", line.name, name);
    cases += fmt::format("    {}) {} ;;\n", pattern,
                         flag.values.known() ? bash_values(flag.values) : "return");
  }
  return cases;
}

constexpr char kBash[] =
    R"sh(# Completes ddp-doctor in bash; made from its command line by `ddp-doctor generate bash`.
_ddp_doctor() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=ddp-doctor flags="" words="" kind="" i
  COMPREPLY=()
  # Bash takes --flag=value apart.
  if [[ $word == "=" ]]; then
    word=""
  elif [[ $before == "=" ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --) command=-- before="" ; break ;;
      {0}) [[ $command != ddp-doctor ]] || command=${{COMP_WORDS[i]}} ;;
    esac
  done
  case $command in
    --) kind=-f ;;
{1}  esac
  [[ $word != -* || $command == -- ]] || {{ words=$flags kind=""; }}
  case $command:$before in
{2}  esac
  [[ -z $kind ]] || compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <([[ -z $kind ]] || compgen "$kind" -- "$word"; compgen -W "$words" -- "$word")
}}
complete -F _ddp_doctor ddp-doctor
)sh";

std::string zsh_action(const Values& values) {
  if (values.files) return "_files";
  if (values.folders) return "_files -/";
  return values.words.empty() ? " " : fmt::format("({})", fmt::join(values.words, " "));
}

// A word of _arguments: '(-q --quiet)'{-q,--quiet}'[Print the verdict only]'.
std::string zsh_flag(const Flag& flag) {
  std::string text = "[" + escaped(in_brief(flag.help), "\\[]:") + "]";
  if (!flag.takes.empty())
    text += fmt::format(":{}:{}", escaped(flag.takes, ":"), zsh_action(flag.values));
  const std::string star = flag.repeatable ? "*" : "";
  std::vector<std::string> names;
  for (const auto& name : flag.names)
    names.push_back(flag.takes.empty() || !name.starts_with("--") ? name : name + "=");
  if (names.size() == 1) return shell_quoted(star + names.front() + text);
  return fmt::format("{}{{{}}}{}",
                     shell_quoted(fmt::format("({}){}", fmt::join(flag.names, " "), star)),
                     fmt::join(names, ","), shell_quoted(text));
}

std::string zsh_arguments(const CommandLine& line, const std::string& indent) {
  std::string text;
  for (const auto& flag : line.flags) text += fmt::format(" \\\n{}{}", indent, zsh_flag(flag));
  return text;
}

constexpr char kZsh[] = R"sh(#compdef ddp-doctor
# Completes ddp-doctor in zsh; made from its command line by `ddp-doctor generate zsh`.
_ddp-doctor() {{
  local curcontext=$curcontext state line
  local -a commands
  commands=({0}
  )
  _arguments -C{1} \
    '1:command:->command' \
    '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $line[1] in
{2}      esac ;;
  esac
}}
# Autoloaded from fpath, or evaluated.
if [[ $funcstack[1] == _ddp-doctor ]]; then
  _ddp-doctor "$@"
else
  compdef _ddp-doctor ddp-doctor
fi
)sh";

std::string fish_quoted(const std::string& text) { return "'" + escaped(text, "\\'") + "'"; }

std::string fish_flag(const Flag& flag, const std::string& condition) {
  std::string text;
  for (const auto& name : flag.names) {
    text += fmt::format("complete -c ddp-doctor -n {} {}", condition,
                        name.starts_with("--") ? "-l " + name.substr(2) : "-s " + name.substr(1));
    if (flag.values.files) text += " -r -F";
    if (flag.values.folders) text += " -x -a '(__fish_complete_directories)'";
    if (!flag.values.words.empty())
      text += fmt::format(" -x -a '{}'", fmt::join(flag.values.words, " "));
    if (!flag.takes.empty() && !flag.values.known()) text += " -x";
    text += fmt::format(" -d {}\n", fish_quoted(in_brief(flag.help)));
  }
  return text;
}

}  // namespace

std::string bash_completion(const CommandLine& line) {
  std::vector<std::string> names;
  for (const auto& command : line.commands) names.push_back(command.name);
  std::string commands = fmt::format("    {}) flags=\"{}\" words=\"{}\" ;;\n", line.name,
                                     all_names(line.flags), fmt::join(names, " "));
  std::string flags = bash_flags(line);
  for (const auto& command : line.commands) {
    commands += fmt::format(
        "    {}) flags=\"{}\"{} ;;\n", command.name, all_names(command.flags),
        command.operands.empty() ? "" : " " + bash_values(command.operands.front().values));
    flags += bash_flags(command);
  }
  return fmt::format(kBash, fmt::join(names, "|"), commands, flags);
}

std::string zsh_completion(const CommandLine& line) {
  std::string names, commands;
  for (const auto& command : line.commands) {
    names += "\n    " + shell_quoted(command.name + ":" + escaped(command.summary, ":"));
    commands += fmt::format("        {}) _arguments -S{}", command.name,
                            zsh_arguments(command, "          "));
    for (const auto& operand : command.operands)
      commands += fmt::format(" \\\n          {}",
                              shell_quoted(fmt::format("*:{}:{}", escaped(operand.takes, ":"),
                                                       zsh_action(operand.values))));
    commands += " ;;\n";
  }
  return fmt::format(kZsh, names, zsh_arguments(line, "    "), commands);
}

std::string fish_completion(const CommandLine& line) {
  std::string text =
      "# Completes ddp-doctor in fish; made from its command line by `ddp-doctor generate fish`.\n"
      "complete -c ddp-doctor -f\n";
  for (const auto& flag : line.flags) text += fish_flag(flag, "__fish_use_subcommand");
  for (const auto& command : line.commands) {
    text += fmt::format("complete -c ddp-doctor -n __fish_use_subcommand -a {} -d {}\n",
                        command.name, fish_quoted(command.summary));
    const std::string here = fish_quoted("__fish_seen_subcommand_from " + command.name);
    for (const auto& operand : command.operands) {
      text += operand.values.files ? fmt::format("complete -c ddp-doctor -n {} -F\n", here)
                                   : fmt::format("complete -c ddp-doctor -n {} -a '{}'\n", here,
                                                 fmt::join(operand.values.words, " "));
    }
    for (const auto& flag : command.flags) text += fish_flag(flag, here);
  }
  return text;
}

}  // namespace ddp_doctor
