// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examine/parity.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.h"
#include "tool/cli/command.h"
#include "tool/cli/output.h"
#include "tool/cli/program_file.h"
#include "tool/cli/program_flags.h"
#include "tool/cli/usage_advice.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

// What to type where no program stands before "--": the launcher's program, if its words show one.
std::string how_to_give_it(const std::optional<std::vector<std::string>>& words) {
  if (!words) return "parity needs a program: ddp-doctor parity train.py";
  const auto script = std::find_if(words->begin(), words->end(),
                                   [](const std::string& word) { return word.ends_with(".py"); });
  const bool found = script != words->end();
  const std::vector<std::string> arguments(found ? script + 1 : script, words->end());
  return fmt::format(
      "parity starts the ranks and the one process itself, without a launcher: "
      "ddp-doctor parity --nproc-per-node 2 {}{}",
      found ? shell_line({*script}) : "train.py",
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
                 "train.py, which ddp-doctor starts as several ranks, and then as one process; put "
                 "its own arguments after --:\n"
                 "ddp-doctor parity train.py -- --lr 0.1")
      ->type_name("PROGRAM");
  add_program_flags(app, options->flags);
  app.get_option("--steps")->description(
      "Compare the gradients of this many optimizer steps, and of a few further ones in which the "
      "ranks' batches have different shapes [3]");
  app.add_option("--reference-args", options->reference_args,
                 "Further arguments for the one process: \"--tp 1\"")
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
    if (options->program.empty()) throw Error(how_to_give_it(call.words));
    if (kind_of_program(options->program) == ProgramKind::kTorchScript)
      throw Error(
          fmt::format("{}: parity compares programs in Python; a TorchScript program is "
                      "examined by: ddp-doctor run {}",
                      options->program.string(), options->program.string()));
    prepare_reports(options->output);
    auto program = program_options(app, options->flags, options->program,
                                   call.words.value_or(std::vector<std::string>{}));
    if (options->flags.world_size < 2)
      throw Error(
          "parity compares several ranks with one process: give --nproc-per-node 2 or more");
    program.placement = call.placement;
    program.pass_on = !options->output.quiet;
    options->parity.steps = options->flags.steps.value_or(options->parity.steps);
    program.steps = 0;
    for (const auto& word : split(options->reference_args, ' ')) {
      if (!word.empty()) options->parity.reference_words.push_back(word);
    }
    const auto examination =
        examination_options(options->out, 0, options->output.quiet, options->trials);
    return deliver(examine_parity(program, options->parity, examination, call.streams),
                   options->output, call.streams);
  };
}

}  // namespace ddp_doctor
