// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/command.h"
#include "tool/cli/output.h"
#include "tool/cli/program_arguments.h"

namespace ddp_doctor {

Action setup_run(CLI::App& app) {
  struct Options {
    ProgramArguments arguments;
    OutputOptions output;
    bool fix = false;
    int repeats = 6;
    TrialFlags trials;
  };
  auto options = std::make_shared<Options>();
  add_program_arguments(app, options->arguments);
  app.add_flag(
      "--fix", options->fix,
      "Then run the program under each strategy that a finding proposes, and show what that fixes "
      "and costs. This changes how the program synchronizes");
  app.add_option("--repeats", options->repeats, "With --fix: timed runs of each strategy, in turn")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  add_fix_budget_flag(app, options->trials);
  add_in_place_flag(app, options->trials);
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options, &app](const Call& call) {
    prepare_reports(options->output);
    ExaminationMode how{options->fix, options->repeats, !options->output.quiet};
    how.wanted = [&](const Finding& finding) { return is_selected(finding, options->output); };
    how.trials = options->trials;
    return examine_program(app, options->arguments, how, call, [&](Report report) {
      return deliver(std::move(report), options->output, call.streams);
    });
  };
}

}  // namespace ddp_doctor
