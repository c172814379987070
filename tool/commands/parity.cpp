// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examine/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "lib/error.h"
#include "tool/cli/command.h"
#include "tool/cli/output.h"
#include "tool/cli/program_file.h"
#include "tool/cli/program_flags.h"
#include "tool/cli/usage_advice.h"
#include "tool/launch/examined_program.h"
#include "tool/launch/job_rank.h"
#include "tool/system/interpreter.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

// What to type where no program stands before "--": the launcher's program or module, if its words
// show one.
std::string how_to_give_it(const std::optional<std::vector<std::string>>& words) {
  if (!words) return "parity needs a program: ddp-doctor parity train.py";
  const auto is_script = [](const std::string& word) { return word.ends_with(".py"); };
  auto end_of_launcher = std::find_if(words->begin(), words->end(), is_script);
  std::string program = end_of_launcher != words->end() ? *end_of_launcher : "train.py";
  std::string first;
  const auto module = std::find(words->begin(), end_of_launcher, "-m");
  if (end_of_launcher == words->end() && words->end() - module > 1) {
    end_of_launcher = module + 1;
    program = "run_module.py";
    first = fmt::format(
        "It starts files; to start the module {0}, write run_module.py with the line\n"
        "  import runpy; runpy.run_module(\"{0}\", run_name=\"__main__\", alter_sys=True)\n"
        "and then: ",
        *end_of_launcher);
  }
  if (end_of_launcher != words->end()) ++end_of_launcher;
  const std::vector<std::string> arguments(end_of_launcher, words->end());
  return fmt::format(
      "parity starts the ranks and the one process itself, without a launcher{}"
      "ddp-doctor parity --nproc-per-node 2 {}{}",
      first.empty() ? ": " : ". " + first, shell_line({program}),
      arguments.empty() ? "" : " -- " + shell_line(arguments));
}

}  // namespace

Action setup_parity(CLI::App& app) {
  struct Options {
    std::filesystem::path program;
    int world_size = 2;
    ProgramFlags flags;
    ParityOptions parity;
    std::string reference_args;
    OutputOptions output;
    TrialFlags trials;
    std::optional<std::filesystem::path> out;
  };
  auto options = std::make_shared<Options>();
  app.add_option("program", options->program,
                 "train.py or script.pt, which ddp-doctor starts as several ranks, and then as one "
                 "process; put a program's own arguments after --:\n"
                 "ddp-doctor parity train.py -- --lr 0.1\n"
                 "A C++ program stands there as a command: ddp-doctor parity -- ./trainer")
      ->type_name("PROGRAM");
  add_program_flags(app, options->flags);
  app.get_option("--steps")->description(
      "Compare the gradients of this many optimizer steps, and of a few further ones in which the "
      "ranks' batches have different shapes [3]");
  app.add_option("--reference-args", options->reference_args,
                 "Further arguments for the one process, as one word: \"--tp 1\"")
      ->type_name("WORDS");
  app.add_option("--budget", options->parity.budget_mib,
                 "MiB that a rank may write of its batches, weights and gradients")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--out", options->out, "Keep the records in this directory")->type_name("DIR");
  add_in_place_flag(app, options->trials);
  add_inconclusive_flag(app, options->output);
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options, &app](const Call& call) {
    const auto words = call.words.value_or(std::vector<std::string>{});
    if (options->program.empty() &&
        (words.empty() || !examines_itself(find_executable(words.front()))))
      throw Error(how_to_give_it(call.words));
    if (options->program.extension() == ".py") refuse_script_flags(app, call);
    const bool script =
        !options->program.empty() && kind_of_program(options->program) == ProgramKind::kTorchScript;
    if (const auto self = own_rank();
        self && (!was_given(app, "--nproc-per-node") || std::getenv("TORCHELASTIC_RUN_ID")))
      throw Error(fmt::format(
          "this is rank {} of {}, and parity starts the ranks and the one process "
          "itself, without a launcher: ddp-doctor parity --nproc-per-node {} {}",
          self->rank, self->world_size, self->world_size, shell_line({options->program.string()})));
    prepare_reports(options->output);
    if (options->flags.world_size < 2)
      throw Error(
          "parity compares several ranks with one process: give --nproc-per-node 2 or more");
    ExaminedProgram program;
    if (script) {
      program = script_options(app, options->flags, options->program, words);
    } else {
      auto given = program_options(app, options->flags, options->program, words);
      given.placement = call.placement;
      given.pass_on = !options->output.quiet;
      program = given;
    }
    options->parity.steps = options->flags.steps.value_or(options->parity.steps);
    options->parity.reference_words = CLI::detail::split_up(options->reference_args);
    const auto examination =
        examination_options(options->out, 0, options->output.quiet, options->trials);
    return deliver(examine_parity(program, options->parity, examination, call.streams),
                   options->output, call.streams);
  };
}

}  // namespace ddp_doctor
