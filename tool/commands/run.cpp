// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "lib/error.h"
#include "tool/cli/command.h"
#include "tool/cli/output.h"
#include "tool/cli/program_arguments.h"
#include "tool/system/shell_words.h"

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
    for (const char* flag : {"--repeats", "--fix-budget", "--in-place"}) {
      if (!options->fix && std::any_of(call.args.begin(), call.args.end(), [&](const auto& word) {
            return word.substr(0, word.find('=')) == flag;
          })) {
        std::vector<std::string> line = {"ddp-doctor", "run", "--fix"};
        line.insert(line.end(), call.args.begin(), call.args.end());
        if (call.words) line.emplace_back("--");
        if (call.words) line.insert(line.end(), call.words->begin(), call.words->end());
        throw Error(fmt::format("{} is only for --fix: {}", flag, shell_line(line)));
      }
    }
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
