// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "lib/error.h"
#include "lib/log.h"
#include "lib/version.h"
#include "tool/cli/command.h"
#include "tool/cli/config_file.h"
#include "tool/cli/help.h"
#include "tool/cli/log_output.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/usage_advice.h"
#include "tool/system/interpreter.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 healthy, 1 findings, 2 could not run, 3 inconclusive, 130 interrupted.\n"
    "Every flag can be set in ddp-doctor.toml, in a section for each command ([check]), or in the\n"
    "environment: --nproc-per-node is DDP_DOCTOR_NPROC_PER_NODE.";

constexpr char kConfig[] = "ddp-doctor.toml";

bool takes_words(const std::string& word) {
  const auto commands = all_commands();
  return std::any_of(commands.begin(), commands.end(), [&](const Command& command) {
    return command.takes_words && word == command.name;
  });
}

// The program's own arguments are never parsed as flags of ddp-doctor.
std::optional<std::vector<std::string>> split_words(std::vector<std::string>& args) {
  const auto command = std::find_if(args.begin(), args.end(), takes_words);
  const auto dashes = std::find(command, args.end(), "--");
  if (dashes == args.end()) return {};
  std::vector<std::string> words(dashes + 1, args.end());
  args.erase(dashes, args.end());
  return words;
}

// `check --config FILE` is `--config FILE check` to CLI11, which reads one file for all commands.
void hoist_config(std::vector<std::string>& args) {
  const auto given = std::find_if(args.begin(), args.end(), [](const std::string& word) {
    return word == "--config" || word.starts_with("--config=");
  });
  if (given == args.end()) return;
  const auto words = *given == "--config" && given + 1 != args.end() ? 2 : 1;
  std::rotate(args.begin(), given, given + words);
}

constexpr char kNoCommand[] = "name a command: ddp-doctor run train.py";

// What other tools call a command, or a flag.
constexpr std::pair<const char*, const char*> kOtherWords[] = {
    {"fix", "run --fix"}, {"examine", "run"},  {"diagnose", "run"},
    {"lint", "check"},    {"diff", "compare"}, {"list", "rules"},
    {"info", "env"},      {"help", "--help"},  {"version", "--version"},
};

// CLI11 says "A subcommand is required" of a misspelt one.
std::string unknown_command(const std::vector<std::string>& args) {
  if (args.empty()) return kNoCommand;
  const std::string& first = args.front();
  if (first.starts_with('-')) {
    const std::string name = first.substr(0, first.find('='));
    const std::vector<std::string> flags = {"-h", "--help", "--version", "--config"};
    if (std::find(flags.begin(), flags.end(), name) != flags.end()) return {};
    const auto meant = did_you_mean(name, flags);
    return fmt::format("unknown option {}{}", first,
                       meant.empty() ? fmt::format("; {}", kNoCommand) : meant);
  }
  for (const auto& [word, meant] : kOtherWords) {
    if (first != word) continue;
    std::string line = "ddp-doctor ";
    if (first == "help" && args.size() > 1) line += args[1] + " ";
    line += meant;
    if (meant[0] != '-' && args.size() > 1)
      line += " " + shell_line({args.begin() + 1, args.end()});
    return fmt::format("{} is not a command; did you mean `{}`?", first, line);
  }
  std::vector<std::string> known;
  for (const auto& command : all_commands()) {
    if (first == command.name) return {};
    if (!command.hidden) known.emplace_back(command.name);
  }
  if (const auto meant = did_you_mean(args.front(), known); !meant.empty())
    return fmt::format("{} is not a command{}", args.front(), meant);
  const auto extension = std::filesystem::path(args.front()).extension();
  if (extension == ".py" || extension == ".pt")
    return fmt::format("{} is not a command; to examine it: ddp-doctor run {}", args.front(),
                       shell_line({args.front()}));
  if (first == "torchrun" || !find_executable(first).empty())
    return fmt::format("{} is not a command of ddp-doctor; to examine what it starts: {}", first,
                       "ddp-doctor run -- " + shell_line(args));
  return fmt::format("{} is not a command; there are {}", first, fmt::join(known, ", "));
}

int verbosity_of(const CLI::App& app) {
  int verbose = 0;
  for (const auto* chosen : app.get_subcommands()) {
    if (const auto* option = chosen->get_option_no_throw("--verbose"))
      verbose = static_cast<int>(option->count());
  }
  return verbose;
}

// ": ddp-doctor run train.py"
std::string example_of(const std::string& command) {
  for (const auto& each : all_commands()) {
    if (command == each.name) return fmt::format(": ddp-doctor {} {}", command, each.example);
  }
  return {};
}

// CLI11 names the flag whose value is wrong, but not that the value came from the environment.
std::string named_by_environment(const CLI::App& command, const std::string& problem) {
  for (const auto* option : command.get_options()) {
    const char* value = std::getenv(option->get_envname().c_str());
    if (value != nullptr && problem.starts_with(option->get_name() + ":") &&
        option->results() == std::vector<std::string>{value})
      return fmt::format(" (from the environment variable {})", option->get_envname());
  }
  return {};
}

// CLI11's words for a value that is not allowed, in ours: "--format: jsn not in {text,json}".
std::string reworded(const std::string& problem) {
  const auto colon = problem.find(": ");
  if (const auto in = problem.find(" not in {"); in != std::string::npos && colon < in) {
    const std::string value = problem.substr(colon + 2, in - colon - 2);
    std::vector<std::string> known;
    std::istringstream list(problem.substr(in + 9, problem.rfind('}') - in - 9));
    for (std::string word; std::getline(list, word, ',');) known.push_back(word);
    const auto meant = did_you_mean(value, known);
    return fmt::format("{} {} is not possible{}", problem.substr(0, colon), value,
                       meant.empty() ? fmt::format("; choose {}", fmt::join(known, ", ")) : meant);
  }
  if (const auto value = problem.find(": Value "); value != std::string::npos) {
    constexpr std::string_view kRange = " not in range ";
    const auto range = problem.find(kRange);
    if (range != std::string::npos)
      return fmt::format("{} {} is not a number from {}", problem.substr(0, value),
                         problem.substr(value + 8, range - value - 8),
                         problem.substr(range + kRange.size()));
  }
  if (const auto file = problem.find(" was not readable"); file != std::string::npos)
    return fmt::format("--config {}: cannot be read; check the path", problem.substr(0, file));
  if (problem == "programs is required") return "programs are required";
  return problem == "A subcommand is required" ? kNoCommand : problem;
}

// A variable that looks like a setting and is none: DDP_DOCTOR_NPROC.
void warn_of_variables(Streams streams) {
  constexpr std::string_view kPrefix = "DDP_DOCTOR_";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with(kPrefix)) continue;
    const std::string name(text.substr(0, text.find('=')));
    std::string flag = "--" + name.substr(kPrefix.size());
    std::transform(flag.begin(), flag.end(), flag.begin(), [](unsigned char letter) {
      return letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
    });
    if (is_ranks_elsewhere(flag))
      streams.err << fmt::format(
          "ddp-doctor: {} has no effect; did you mean DDP_DOCTOR_NPROC_PER_NODE?\n", name);
  }
}

int parse_failure(const CLI::App& app, const CLI::ParseError& error, const Call& call) {
  const Streams streams = call.streams;
  if (error.get_exit_code() == 0) {  // --help, --version
    app.exit(error, streams.out, streams.err);
    return exit_code::kHealthy;
  }
  std::string command = "ddp-doctor";
  std::string problem = error.what();
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  constexpr std::string_view kUnknownSetting = "INI was not able to parse ";
  if (is(CLI::ExitCodes::ConfigError) && problem.starts_with(kUnknownSetting)) {
    problem = fmt::format("{}: there is no flag {}; fix the file, or name another with --config",
                          app.get_config_ptr()->as<std::string>(),
                          problem.substr(kUnknownSetting.size()));
  }
  const bool of_words = is(CLI::ExitCodes::ExtrasError) || is(CLI::ExitCodes::RequiredError);
  for (const auto* chosen : app.get_subcommands()) {
    command += " " + chosen->get_name();
    problem = reworded(problem) + named_by_environment(*chosen, problem);
    if (is(CLI::ExitCodes::RequiredError)) problem += example_of(chosen->get_name());
    if (chosen->get_allow_extras() || !of_words) continue;  // or usage_advice has answered it
    if (is(CLI::ExitCodes::RequiredError) && !misspelt_flag(*chosen)) continue;
    if (const auto advice = operand_advice(*chosen, call)) problem = *advice;
  }
  if (app.get_subcommands().empty()) problem = reworded(problem);
  streams.err << fmt::format("ddp-doctor: error: {}\nRun `{} --help` for its arguments.\n", problem,
                             command);
  return exit_code::kCouldNotRun;
}

}  // namespace

int run_doctor(std::vector<std::string> args, Streams streams) {
  if (const auto problem = unknown_command(args); !problem.empty()) {
    streams.err << fmt::format("ddp-doctor: error: {}\nRun `ddp-doctor --help` for its commands.\n",
                               problem);
    return exit_code::kCouldNotRun;
  }
  auto words = split_words(args);
  Call call{streams,
            args.empty() ? args : std::vector<std::string>(args.begin() + 1, args.end()),
            std::move(words),
            {}};
  const bool bisecting = args.size() > 1 && args.front() == "check" &&
                         std::find(args.begin(), args.end(), "--bisect") != args.end();
  hoist_config(args);
  CLI::App app(
      "Tells whether distributed data-parallel training really synchronizes, and if not, why.",
      "ddp-doctor");
  app.set_version_flag("--version", std::string("ddp-doctor ") + kVersion);
  app.require_subcommand(1);
  app.formatter(wrapped_help());
  app.footer(kFooter);
  app.set_config("--config", kConfig, "Defaults for flags")
      ->envname("DDP_DOCTOR_CONFIG")
      ->type_name("FILE");
  app.config_formatter(toml_reader(call.placement));
  app.allow_config_extras(CLI::config_extras_mode::error);
  Action action;
  for (const auto& command : all_commands()) {
    auto* sub = app.add_subcommand(command.name, command.summary);
    sub->group(command.hidden ? "" : "Commands");
    sub->callback([&action, chosen = command.setup(*sub)] { action = chosen; });
  }
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes a vector from its end
    app.parse(args);
    warn_of_variables(streams);
    const LogOutput log_output(streams.err, verbosity_of(app));
    if (const auto* file = app.get_config_ptr(); file->count() > 0)
      log::info("defaults of the flags: {}", file->as<std::string>());
    return action(call);
  } catch (const CLI::ParseError& error) {
    const int code = parse_failure(app, error, call);
    return bisecting ? exit_code::for_bisect(code) : code;
  } catch (const Interrupted& error) {
    streams.err << "ddp-doctor: " << error.what() << '\n';
    return exit_code::kInterrupted;
  } catch (const std::exception& error) {
    streams.err << "ddp-doctor: error: " << error.what() << '\n';
    return bisecting ? exit_code::kCannotTell : exit_code::kCouldNotRun;
  }
}

}  // namespace ddp_doctor
