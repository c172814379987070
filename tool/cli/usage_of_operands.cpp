// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "lib/diagnose/rule.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/program_flags.h"
#include "tool/cli/usage_advice.h"
#include "tool/cli/usage_words.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {

std::string explain_advice(Words words) {
  namespace fs = std::filesystem;
  if (words.size() > 1 && words.front() == "-") words.erase(words.begin());
  const auto is_log = [](const std::string& word) {
    const auto extension = fs::path(word).extension();
    std::error_code unreadable;
    return extension == ".log" || extension == ".txt" || extension == ".out" ||
           extension == ".err" || fs::is_regular_file(word, unreadable);
  };
  const std::string& first = words.front();
  if (words.size() == 1 && is_program(first))
    return fmt::format("{} is a program; to examine it: ddp-doctor run {}", first,
                       shell_line(words));
  if (words.size() == 1 && is_log(first))
    return fmt::format("{} is not a rule; to explain a log: ddp-doctor explain - < {}", first,
                       shell_line(words));
  if (std::all_of(words.begin(), words.end(), [](const auto& word) { return find_rule(word); }))
    return fmt::format("explain takes one rule: ddp-doctor explain {}", first);
  if (words.size() > 1 || first.find(' ') != std::string::npos)
    return fmt::format(
        "an error message is read from standard input: echo {} | ddp-doctor explain -",
        shell_line({fmt::format("{}", fmt::join(words, " "))}));
  const auto meant = did_you_mean_rule(first);
  return fmt::format(
      "{} is not a rule{}{} `ddp-doctor rules` lists them; `ddp-doctor explain -` reads an error "
      "text from standard input",
      first, meant, meant.ends_with('?') ? "" : ";");
}

std::optional<Advice> advice_about_operands(const CLI::App& command, const Call& call) {
  const auto operands =
      command.get_options([](const CLI::Option* each) { return each->get_positional(); });
  const bool many = !operands.empty() && operands.front()->get_items_expected_max() > 1;
  const bool script = std::any_of(call.args.begin(), call.args.end(), is_script);
  const bool takes_words = !script && command.get_option_no_throw("--stop-after") != nullptr;
  const bool python = std::any_of(call.args.begin(), call.args.end(), [](const std::string& word) {
    return word.substr(0, word.find_first_of("@ ")).ends_with(".py");
  });
  Words ours = {"ddp-doctor", command.get_name()}, own, all;  // `all`: those that are no flags
  std::string problem, option;
  bool may_be_own = false, misspelled = false;
  std::size_t given = 0;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const std::string& word = call.args[i];
    if (!is_flag(word)) {
      const bool operand = many || given < operands.size();
      all.push_back(word);
      if (!operand && problem.empty()) problem = unknown({word});
      (operand ? ours : own).push_back(word);
      given += operand ? 1 : 0;
      continue;
    }
    const std::string name = name_of_flag(word);
    const auto* known = find_flag(command, name);
    const bool foreign = known != nullptr && python && known->get_group() == kOnlyScripts;
    const auto meant = known != nullptr ? Words{} : meant_flags(command, name);
    auto& target = (known != nullptr && !foreign) || !meant.empty() ? ours : own;
    if (problem.empty() && !meant.empty()) {
      problem = fmt::format("{}; did you mean {}?", unknown({word}), meant.front());
      option = name;
      misspelled = true;
    } else if (problem.empty() && (foreign || known == nullptr)) {
      problem = foreign ? name + " is only for TorchScript programs" : unknown({word});
      may_be_own = takes_words;
      option = foreign ? "" : name;
    }
    target.push_back(meant.empty() ? word : meant.front() + word.substr(name.size()));
    const auto* option = meant.empty() ? known : command.get_option(meant.front());
    const bool next = i + 1 < call.args.size() && !is_flag(call.args[i + 1]) &&
                      word.find('=') == std::string::npos;
    if (next &&
        (option != nullptr ? takes_value(*option)
                           : !is_program(call.args[i + 1].substr(0, call.args[i + 1].find('@')))))
      target.push_back(call.args[++i]);
  }
  if (problem.empty()) return {};
  if (problem.starts_with(kUnexpected) && command.get_name() == "explain")
    return Advice{explain_advice(all)};
  if (problem.starts_with(kUnexpected) && operands.empty() && find_rule(all.front()) != nullptr)
    return Advice{fmt::format("{}; a rule's page: ddp-doctor explain {}", problem, all.front())};
  const bool complete = operands.empty() || !operands.front()->get_required() || given > 0;
  std::string line;  // what to type, if it is known
  if (complete && (own.empty() || takes_words)) {
    if (call.words) own.insert(own.end(), call.words->begin(), call.words->end());
    if (!own.empty()) ours.emplace_back("--");
    ours.insert(ours.end(), own.begin(), own.end());
    line = shell_line(ours);
  }
  if (script && !misspelled && !option.empty()) return Advice{problem + kNoArguments, option};
  if (may_be_own) return Advice{problem + "; " + after_dashes(line), option, after_dashes(line)};
  if (misspelled && !line.empty()) problem += " Try";
  return Advice{problem + (line.empty() ? "" : ": " + line), option};
}

}  // namespace ddp_doctor
