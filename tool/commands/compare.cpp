// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/error.h"
#include "lib/record/worker.h"
#include "tool/cli/command.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/output.h"
#include "tool/cli/program_file.h"
#include "tool/cli/program_flags.h"
#include "tool/cli/usage_advice.h"
#include "tool/examine/examination.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

struct CompareOptions {
  std::vector<std::string> programs;
  ProgramFlags flags;
  OutputOptions output;
  bool fix = false;
  bool equal = false;
  int repeats = 0;
  TrialFlags trials;
  std::optional<std::filesystem::path> out;
};

void check_strategy(const std::string& program, const std::string& strategy,
                    const ExaminedProgram& examined) {
  std::vector<std::string> known(std::begin(kScriptStrategies), std::end(kScriptStrategies));
  if (const auto* own = std::get_if<ProgramOptions>(&examined)) {
    known.assign(std::begin(kProgramStrategies), std::end(kProgramStrategies));
    known.emplace_back(kOneProcess);
    if (strategy == kOneProcess && own->is_command())
      throw Error(
          fmt::format("{}@{}: ddp-doctor must start the ranks and the one process itself; name the "
                      "program, without a launcher: train.py@{}",
                      program, strategy, kOneProcess));
    if (strategy == kOneProcess) return;
  }
  for (const auto& part : split(strategy, '+')) {
    if (part == kAsIs && std::holds_alternative<ProgramOptions>(examined)) continue;
    if (part == kOneProcess && std::holds_alternative<ProgramOptions>(examined))
      throw Error(fmt::format("{}@{}: {} is not joined with other strategies; name it by itself",
                              program, strategy, kOneProcess));
    if (std::find(known.begin(), known.end(), part) != known.end()) continue;
    const auto meant = did_you_mean(part, known);
    throw Error(
        fmt::format("{}@{}: not a strategy for this program{}", program, part,
                    meant.empty() ? fmt::format("; there are {}", fmt::join(known, ", ")) : meant));
  }
}

// "train.py", "train.py --lr 1", "train.py@ddp,ddp-static-graph", "@ddp" (of the program before),
// "torchrun train.py".
class Parser {
 public:
  Parser(const CLI::App& app, const CompareOptions& options, const Call& call)
      : app_(app), options_(options), words_(call.words.value_or(std::vector<std::string>{})) {}

  void add(const std::string& text) {
    const auto at = std::filesystem::exists(text) ? std::string::npos : text.rfind('@');
    const std::string program = text.substr(0, at);
    if (!program.empty()) program_ = program_of(program);
    if (!program_)
      throw Error(fmt::format("{}: name a program before its strategies: train.py{}", text, text));
    if (at + 1 == text.size())
      throw Error(fmt::format("{0}: name a strategy after @: {0}ddp-find-unused", text));
    if (at == std::string::npos) {
      programs.push_back(*program_);
      return;
    }
    for (const auto& strategy : split(text.substr(at + 1), ',')) {
      check_strategy(program, strategy, *program_);
      programs.push_back(under(*program_, strategy));
    }
  }

  std::vector<ExaminedProgram> programs;

 private:
  ExaminedProgram program_of(const std::string& program) const {
    if (!std::filesystem::exists(program) && program.find(' ') != std::string::npos) {
      auto words = split(program, ' ');
      if (words.front().ends_with(".py") && std::filesystem::exists(words.front())) {
        const std::filesystem::path file = words.front();
        words.erase(words.begin());
        std::erase(words, "");
        words.insert(words.end(), words_.begin(), words_.end());
        auto options = program_options(app_, options_.flags, file, words);
        options.pass_on = false;
        return options;
      }
      auto command = program_options(app_, options_.flags, {}, {"sh", "-c", program});
      command.pass_on = false;
      return command;
    }
    if (kind_of_program(program) == ProgramKind::kTorchScript)
      return script_options(app_, options_.flags, program, {});  // words: of the others
    auto options = program_options(app_, options_.flags, program, words_);
    options.pass_on = false;
    return options;
  }

  const CLI::App& app_;
  const CompareOptions& options_;
  const std::vector<std::string> words_;
  std::optional<ExaminedProgram> program_;
};

}  // namespace

Action setup_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  app.add_option("programs", options->programs,
                 "What to compare: train.py, \"train.py --lr 1\", script.pt, or a quoted command, "
                 "\"torchrun "
                 "train.py\"; optionally with strategies:\n"
                 "ddp-doctor compare train.py @ddp-find-unused,ddp-static-graph\n"
                 "ddp-doctor compare train.py@one-process fixed.py@one-process\n"
                 "Arguments after -- go to all of them")
      ->type_name("PROGRAM[@STRATEGY]")
      ->required();
  app.add_flag("--fix", options->fix,
               "Compare one program with the fixes that its findings propose, as run --fix");
  app.add_flag("--equal", options->equal,
               "Exit with code 1 if gradients or weights differ between the programs");
  app.add_option("--repeats", options->repeats, "Additional timed runs of each program, in turn")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  add_fix_budget_flag(app, options->trials);
  add_in_place_flag(app, options->trials);
  add_program_flags(app, options->flags);
  app.add_option("--out", options->out, "Keep the records in this directory")->type_name("DIR");
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options, &app](const Call& call) {
    refuse_script_flags(app, call);
    prepare_reports(options->output);
    Parser parser(app, *options, call);
    for (const auto& program : options->programs) parser.add(program);
    for (auto& program : parser.programs) {
      if (auto* own = std::get_if<ProgramOptions>(&program)) own->placement = call.placement;
    }
    const auto examination =
        examination_options(options->out, options->repeats, options->output.quiet, options->trials);
    if (options->fix) {
      if (parser.programs.size() != 1)
        throw Error("--fix takes one program and compares it with its fixes; name one");
      return deliver(examine_and_fix(parser.programs.front(), examination, call.streams),
                     options->output, call.streams);
    }
    if (parser.programs.size() < 2)
      throw Error(
          fmt::format("{0}: nothing to compare it with; name another program or a strategy "
                      "({0} @ddp-find-unused), or give --fix",
                      options->programs.front()));
    Report report = examine(parser.programs, Purpose::kCompare, examination, call.streams);
    const bool part = std::any_of(report.equalities.begin(), report.equalities.end(),
                                  [](const Equality& equality) {
                                    return equality.seen.parting || equality.seen.parameters == 0;
                                  });
    const std::string difference = report.difference;
    const int code = deliver(std::move(report), options->output, call.streams);
    if (code != exit_code::kHealthy || !options->equal || !part) return code;
    call.streams.err << fmt::format("ddp-doctor: exit code {} by --equal: {}\n", exit_code::kSick,
                                    difference);
    return exit_code::kSick;
  };
}

}  // namespace ddp_doctor
