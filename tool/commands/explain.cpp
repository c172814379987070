// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/report/render/explanations.h"
#include "lib/report/render/mentioned.h"
#include "lib/version.h"
#include "tool/cli/command.h"
#include "tool/cli/output.h"
#include "tool/cli/program_arguments.h"
#include "tool/cli/rule_pages.h"
#include "tool/cli/usage_advice.h"

namespace ddp_doctor {
namespace {

const RulePage& page_of(const std::string& asked) {
  std::string wanted = asked;
  for (auto& letter : wanted)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if (wanted.starts_with("ddp")) wanted.replace(0, 3, "DDP");
  if (const Rule* rule = find_rule(wanted)) wanted = rule->code;
  for (const auto& page : rule_pages()) {
    if (page.code == wanted) return page;
  }
  throw Error(explain_advice({asked}));
}

int explain_rule(const std::string& asked, const std::string& format, Streams streams) {
  const RulePage& page = page_of(asked);
  if (format == "json") {
    const Rule* rule = find_rule(page.code);
    const nlohmann::ordered_json json = {{"schema_version", 1},
                                         {"rule", page.code},
                                         {"name", rule->name},
                                         {"severity", name_of(rule->severity)},
                                         {"page", page.text}};
    streams.out << json.dump(2) << '\n';
  } else {
    streams.out << page.text;
  }
  return exit_code::kHealthy;
}

// Why nothing was explained, and what to do.
std::string nothing_known(const ExplainedLog& log) {
  const std::string program = log.program.value_or("train.py");
  if (log.last_error.empty()) {
    return fmt::format(
        "found no known message of distributed training in {} line(s). Paste the whole output "
        "of every rank, from the first traceback to the end, or examine the training itself: "
        "`ddp-doctor run {}`",
        log.lines, program);
  }
  if (log.last_error_in_library) {
    return fmt::format(
        "found no message that it knows in {} line(s), although the last error in it is raised by "
        "a "
        "library of distributed training: {}\nIf only some ranks raise it, paste the output of the "
        "others too, or run `ddp-doctor run {}`, which names the rank that failed first",
        log.lines, log.last_error, program);
  }
  return fmt::format(
      "found no known message of distributed training in {} line(s). The last error in it "
      "does not mention distributed training: {}\nIf only some ranks raise it, paste the output of "
      "the "
      "others too, or run `ddp-doctor run {}`, which names the rank that failed first",
      log.lines, log.last_error, program);
}

struct Options {
  std::string what;
  std::string format = "text";
  ProgramArguments arguments;  // a program in which parameters are looked up
};

// Where the text leaves several rules open and the run shows one of them, it is that one.
void decide_by(const std::vector<Finding>& findings, ExplainedLog& log) {
  for (auto& explanation : log.explanations) {
    const auto& open = explanation.rules;
    const auto shown = std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return std::find(open.begin(), open.end(), finding.rule) != open.end();
    });
    if (open.size() < 2 || shown == findings.end()) continue;
    explanation.seen.push_back(fmt::format("The program that was run shows {} {}, on {}.",
                                           shown->rule, shown->name, ranks_of(shown->ranks)));
    explanation.rules = {shown->rule};
  }
}

std::optional<MentionedParameters> look_up(const CLI::App& app, const Options& options,
                                           ExplainedLog& log, const Call& call) {
  if (options.arguments.program.empty()) return {};
  std::optional<MentionedParameters> mentioned;
  const int code =
      examine_program(app, options.arguments, {.pass_on = false}, call, [&](const Report& report) {
        mentioned = mentioned_in(log, report.runs.front());
        decide_by(report.findings, log);
        return exit_code::kHealthy;
      });
  if (code == exit_code::kInterrupted) throw Interrupted("interrupted");
  return mentioned;
}

int explain_input(const CLI::App& app, const Options& options, const Call& call) {
  const Streams streams = call.streams;
  if (&streams.in == &std::cin && isatty(STDIN_FILENO) == 1)
    streams.err << "Paste the error message or the log, then press Ctrl-D on an empty line.\n";
  const std::string text{std::istreambuf_iterator<char>(streams.in), {}};
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(
        "standard input is empty; pipe an error message or a log to it: ddp-doctor explain - < "
        "train.log");
  ExplainedLog log = explain_log(text);
  const bool json = options.format == "json";
  const auto mentioned = log.explanations.empty() ? std::nullopt : look_up(app, options, log, call);
  if (json) render_json(log, kVersion, mentioned ? &*mentioned : nullptr, streams.out);
  if (log.explanations.empty()) {
    streams.err << "ddp-doctor: " << nothing_known(log) << ".\n";
    return exit_code::kInconclusive;
  }
  if (!json) render_text(log, streams.out);
  if (!json && mentioned) render_text(*mentioned, streams.out);
  return exit_code::kHealthy;
}

}  // namespace

Action setup_explain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option(
         "rule", options->what,
         fmt::format("Code ({}) or name ({}) of a rule; - reads an error message or a log from "
                     "standard input",
                     kWrapperBypassed.code, kWrapperBypassed.name))
      ->required()
      ->type_name("CODE|-");
  app.add_option("--format", options->format, "Format of the output")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  options->arguments.strategies = {"ddp"};
  app.add_option(
         "--program", options->arguments.program,
         "With -: also run this program, and name its parameters that the error message refers to; "
         "put the program's own arguments after --")
      ->type_name("PROGRAM");
  add_program_flags(app, options->arguments.flags);
  add_environment_defaults(app);
  app.footer(
      "Exit codes: 0 explained, 2 could not run, 3 no known text, 130 interrupted.\n"
      "The environment can set every flag: --format is DDP_DOCTOR_FORMAT.");
  return [options, &app](const Call& call) {
    return options->what == "-" ? explain_input(app, *options, call)
                                : explain_rule(options->what, options->format, call.streams);
  };
}

}  // namespace ddp_doctor
