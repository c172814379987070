// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/diagnose/rule.h"
#include "lib/record/worker.h"
#include "tool/cli/command.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

std::vector<std::string> rule_codes() {
  std::vector<std::string> codes;
  for (const Rule* rule : all_rules()) codes.emplace_back(rule->code);
  return codes;
}

std::vector<std::string> script_strategies() {
  std::vector<std::string> names(std::begin(kScriptStrategies), std::end(kScriptStrategies));
  names.emplace_back("all");
  return names;
}

// The words of CLI::IsMember in a type "TEXT:{text,json}"; of several, those of the last check.
std::vector<std::string> choices(const std::string& type) {
  const auto begin = type.rfind('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return split(type.substr(begin + 1, end - begin - 1), ',');
}

// By the name that the commands give what they take; CLI11 appends its checks to it, after a colon.
Values values_of(const std::string& type) {
  if (type == "DIR") return {.folders = true};
  for (const char* file :
       {"FILE", "PATH", "PROGRAM", "PROGRAM[@STRATEGY]", "RUN-FOLDER|REPORT.json"}) {
    if (type == file) return {.files = true};
  }
  if (type == "CODE" || type == "CODE|-") return {.words = rule_codes()};
  if (type == "LIST") return {.words = script_strategies()};
  if (type == "NAME") return {.words = demo_names()};
  if (type.starts_with("TEXT:")) return {.words = choices(type)};
  const auto words = split(type.substr(0, type.find(':')), '|');  // "bits|measured"
  return {.words = words.size() > 1 ? words : std::vector<std::string>{}};
}

// "INT:INT in [1 - 1024]" allows 1 to 1024.
std::string limits_of(const std::string& type) {
  if (type.ends_with(":NONNEGATIVE")) return "0 or more";
  const auto begin = type.find(" in ["), between = type.find(" - ", begin);
  if (begin == std::string::npos || between == std::string::npos) return {};
  return fmt::format("{} to {}", type.substr(begin + 5, between - begin - 5),
                     type.substr(between + 3, type.size() - between - 4));
}

// What a reader is shown of a type.
std::string name_of(const std::string& type, const Values& values) {
  const std::string name = type.substr(0, type.find(':'));
  if (name == "TEXT" && values.known()) return fmt::format("{}", fmt::join(values.words, "|"));
  return name == "INT" ? "N" : name == "FLOAT" ? "X" : name.empty() ? "VALUE" : name;
}

}  // namespace

Flag described(const CLI::Option& option) {
  Flag flag;
  for (const auto& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    flag.values = values_of(type);
    flag.takes = name_of(type, flag.values);
    flag.limits = limits_of(type);
  }
  flag.help = option.get_description();
  flag.fallback = option.get_default_str();
  flag.variable = option.get_envname();
  flag.group = option.get_group();
  flag.repeatable = option.get_items_expected_max() > 1;
  flag.required = option.get_required();
  return flag;
}

CommandLine described(const CLI::App& app) {
  CommandLine line{.name = app.get_name(),
                   .summary = app.get_description(),
                   .flags = {},
                   .operands = {},
                   .commands = {},
                   .footer = app.get_footer()};
  for (const auto* option : app.get_options())
    (option->nonpositional() ? line.flags : line.operands).push_back(described(*option));
  // Headings of their own come last, as in --help.
  std::stable_sort(line.flags.begin(), line.flags.end(), [](const Flag& a, const Flag& b) {
    return a.group == "Options" && b.group != "Options";
  });
  for (const auto* command :
       app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); }))
    line.commands.push_back(described(*command));
  return line;
}

std::string in_brief(const std::string& help) {
  std::size_t end = help.size();
  for (const char* stop : {"\n", ". ", "; ", " ["}) end = std::min(end, help.find(stop));
  if (end > 0 && help[end - 1] == '.') --end;
  return help.substr(0, end);
}

}  // namespace ddp_doctor
