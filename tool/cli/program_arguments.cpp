// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/program_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "lib/error.h"
#include "lib/record/worker.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/program_file.h"
#include "tool/cli/usage_advice.h"
#include "tool/examine/examination.h"
#include "tool/launch/job_rank.h"
#include "tool/system/interpreter.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

// "all", or names of strategies, each once.
std::vector<std::string> expand(const std::vector<std::string>& given) {
  std::vector<std::string> strategies;
  const auto add = [&](std::string_view name) {
    if (std::find(strategies.begin(), strategies.end(), name) == strategies.end())
      strategies.emplace_back(name);
  };
  for (const auto& name : given) {
    if (name != "all") {
      add(name);
    } else {
      for (const auto strategy : kScriptStrategies) add(strategy);
    }
  }
  return strategies;
}

std::string known_strategy(const std::string& name) {
  std::vector<std::string> known(std::begin(kScriptStrategies), std::end(kScriptStrategies));
  known.emplace_back("all");
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  const auto meant = did_you_mean(name, known);
  return fmt::format("{} is not a strategy{}", name,
                     meant.empty() ? fmt::format("; there are {}", fmt::join(known, ", ")) : meant);
}

ExaminationOptions options_of(const ProgramArguments& arguments, const ExaminationMode& how) {
  return examination_options(arguments.out, how.fix ? how.repeats : 0, !how.pass_on, how.trials);
}

// Words that are not ddp-doctor's, and flags that the program would have understood.
void refuse_misplaced_words(const CLI::App& app, const ProgramArguments& arguments,
                            const Call& call) {
  const auto extras = app.remaining();
  if (extras.empty() &&
      !(arguments.program.extension() == ".py" && was_any_given(app, kOnlyScripts)))
    return;
  if (const auto advice = usage_advice(app, call))
    throw CLI::ExtrasError(*advice, CLI::ExitCodes::ExtrasError);
  if (!extras.empty())
    throw CLI::ExtrasError("unknown option " + shell_line(extras), CLI::ExitCodes::ExtrasError);
}

// "run -- train.py" names a program, not a command; "run train.py@ddp" is what compare takes.
void refuse_program_as_command(const CLI::App& app, const ProgramArguments& arguments,
                               const Call& call) {
  namespace fs = std::filesystem;
  const auto is_program = [](const fs::path& file) {
    return (file.extension() == ".py" || file.extension() == ".pt") && fs::exists(file);
  };
  const std::string program = arguments.program.string();
  const auto at = program.rfind('@');
  if (at != std::string::npos && !fs::exists(program) && is_program(program.substr(0, at))) {
    throw Error(fmt::format(
        "{}: {} takes no strategy; to run the program under it: ddp-doctor compare {}", program,
        app.get_name(), shell_line({program.substr(0, at), program.substr(at)})));
  }
  if (!program.empty() || !is_program(call.words->front()) ||
      !find_executable(call.words->front()).empty())
    return;
  std::vector<std::string> line = {"ddp-doctor", app.get_name()};
  line.insert(line.end(), call.args.begin(), call.args.end());
  line.push_back(call.words->front());
  if (call.words->size() > 1) line.emplace_back("--");
  line.insert(line.end(), call.words->begin() + 1, call.words->end());
  throw Error(fmt::format("{} is a program, not a command; name it before --: {}",
                          call.words->front(), shell_line(line)));
}

Report examine_script(const CLI::App& app, const ProgramArguments& arguments,
                      const ExaminationMode& how, const std::vector<std::string>& words,
                      const Call& call) {
  if (how.rounding)
    throw Error(
        fmt::format("{}: --tolerance measured is for programs in Python and C++; a baseline of a "
                    "TorchScript program has bits only",
                    arguments.program.string()));
  const ExaminationOptions options = options_of(arguments, how);
  const ExaminedProgram program = script_options(app, arguments.flags, arguments.program, words);
  const auto strategies = expand(arguments.strategies);
  if (how.fix) return examine_and_fix(under(program, strategies.front()), options, call.streams);
  std::vector<ExaminedProgram> programs;
  for (const auto& strategy : strategies) programs.push_back(under(program, strategy));
  return examine(programs, Purpose::kRun, options, call.streams);
}

int examine_unmodified(const CLI::App& app, const ProgramArguments& arguments,
                       const ExaminationMode& how, const std::vector<std::string>& words,
                       const Call& call, const std::function<int(Report)>& deliver) {
  auto program = program_options(app, arguments.flags, arguments.program, words);
  program.placement = call.placement;
  program.pass_on = how.pass_on;
  program.wanted = how.wanted;
  const auto self = own_rank();
  const bool starts_ranks = was_given(app, "--nproc-per-node");
  if (self && starts_ranks && std::getenv("TORCHELASTIC_RUN_ID") != nullptr) {
    throw Error(fmt::format(
        "this is rank {} of {} started by torchrun; give --nproc_per_node to torchrun only",
        self->rank, self->world_size));
  }
  if (self && !starts_ranks) {
    if (how.fix) {
      throw Error(
          "--fix runs the program several times, which one rank cannot do; let ddp-doctor start "
          "torchrun: ddp-doctor run --fix -- torchrun ...");
    }
    if (how.rounding) {
      throw Error(
          "--tolerance measured runs the program twice, which one rank cannot do; let ddp-doctor "
          "start torchrun: ddp-doctor check ... -- torchrun ...");
    }
    return examine_own_rank(program, *self, arguments.out, call.streams, deliver);
  }
  const ExaminationOptions options = options_of(arguments, how);
  if (how.fix) return deliver(examine_and_fix(program, options, call.streams));
  if (how.rounding) return deliver(examine_rounding(program, options, call.streams));
  return deliver(examine({program}, Purpose::kRun, options, call.streams));
}

}  // namespace

void add_program_arguments(CLI::App& app, ProgramArguments& arguments) {
  app.add_option(
         "program", arguments.program,
         fmt::format(
             "train.py or script.pt; put the program's own arguments after --. To run a command "
             "that starts the ranks itself, or a C++ program with an Examination, put all of "
             "it after --:\n"
             "ddp-doctor {0} -- torchrun --nproc_per_node 2 train.py\n"
             "ddp-doctor {0} --nproc-per-node 2 -- ./trainer",
             app.get_name()))
      ->type_name("PROGRAM");
  app.add_option(
         "--arguments", arguments.words,
         "The program's own arguments, in ddp-doctor.toml; on the command line put them after --")
      ->allow_extra_args(false)
      ->type_name("WORD");
  add_program_flags(app, arguments.flags);
  app.add_option(
         "--strategies", arguments.strategies,
         fmt::format(
             "Strategies, comma-separated: the first is examined, the others are run for "
             "comparison.\n"
             "ddp, ddp-find-unused, ddp-static-graph, bypass, allreduce-each, allreduce-flat, or "
             "all\n[{}]",
             fmt::join(arguments.strategies, ",")))
      ->check(known_strategy)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(kOnlyScripts);
  app.add_option("--out", arguments.out, "Keep the records in this directory")->type_name("DIR");
  app.allow_extras();  // CLI11 would list them in no order, and not say what to do
}

int examine_program(const CLI::App& app, const ProgramArguments& arguments,
                    const ExaminationMode& how, const Call& call,
                    const std::function<int(Report)>& deliver) {
  refuse_misplaced_words(app, arguments, call);
  std::vector<std::string> words = arguments.words;
  if (call.words) words.insert(words.end(), call.words->begin(), call.words->end());
  const bool command = arguments.program.empty() && call.words && !call.words->empty();
  if (arguments.program.empty() && !command) throw CLI::RequiredError("program");
  refuse_program_as_command(app, arguments, call);
  if (!command && kind_of_program(arguments.program) == ProgramKind::kTorchScript)
    return deliver(examine_script(app, arguments, how, words, call));
  return examine_unmodified(app, arguments, how, words, call, deliver);
}

}  // namespace ddp_doctor
