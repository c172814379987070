// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "lib/report/gate/suppression.h"
#include "tool/cli/command.h"
#include "tool/cli/gate.h"
#include "tool/cli/output.h"
#include "tool/cli/program_arguments.h"

namespace ddp_doctor {
namespace {

struct CheckOptions {
  ProgramArguments arguments;
  GateOptions gate;
  OutputOptions output;
  bool bisect = false;
  bool print_suppressions = false;
};

// Prints strings for the list `suppress` in ddp-doctor.toml.
int print_suppressions(Report report, const OutputOptions& output, Streams streams) {
  keep_selected(report, output);
  const auto rendering = rendering_of(output, streams);
  for (const auto& finding : report.findings) {
    if (!rendering.fail_on || finding.severity < *rendering.fail_on) continue;
    for (const auto& text : suppressions_of(finding, report.runs.front(), rendering))
      streams.out << fmt::format("\"{} say why: {}\",\n", text, finding.name);
  }
  return exit_code_of(report, output);
}

int check(const CLI::App& app, const CheckOptions& options, const Call& call) {
  check_gate(options.gate);
  prepare_reports(options.output);
  std::vector<Suppression> suppressions;
  for (const auto& text : options.gate.suppressions) suppressions.emplace_back(text);
  ExaminationMode how{.pass_on = options.output.verbose > 0,
                      .rounding = options.gate.measures_rounding()};
  // Whether a suppression covers a finding is decided in the end.
  how.wanted = [&](const Finding& finding) {
    return is_selected(finding, options.output) &&
           std::none_of(suppressions.begin(), suppressions.end(), [&](const auto& suppression) {
             return suppression.rule() == finding.rule || suppression.rule() == finding.name;
           });
  };
  return examine_program(app, options.arguments, how, call, [&](Report report) {
    apply_gate(report, options.gate, rendering_of(options.output, call.streams), call.streams.err);
    if (options.bisect && report.interrupted)
      throw Interrupted("interrupted; this commit is not judged");
    if (options.print_suppressions)
      return print_suppressions(std::move(report), options.output, call.streams);
    return deliver(std::move(report), options.output, call.streams);
  });
}

}  // namespace

Action setup_check(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  options->arguments.strategies = {"ddp"};
  options->arguments.flags.every = 1;
  options->output.brief = true;
  add_program_arguments(app, options->arguments);
  add_gate_flags(app, options->gate);
  add_inconclusive_flag(app, options->output);
  app.add_flag(
      "--print-suppression", options->print_suppressions,
      "Print the suppressions of the findings, for ddp-doctor.toml, instead of the report");
  app.add_flag("--bisect", options->bisect,
               "Exit codes for `git bisect run`: 0 good, 1 bad, 125 otherwise");
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options, &app](const Call& call) {
    if (!options->bisect) return check(app, *options, call);
    let_selected_decide(app, options->output);
    options->output.inconclusive = "fail";  // neither good nor bad
    try {
      return exit_code::for_bisect(check(app, *options, call));
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      call.streams.err << "ddp-doctor: cannot tell: " << error.what() << '\n';
      return exit_code::kCannotTell;
    }
  };
}

}  // namespace ddp_doctor
