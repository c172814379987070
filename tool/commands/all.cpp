// SPDX-License-Identifier: BSD-3-Clause
// All commands, in the order of --help. Each is one file here.
#include "tool/cli/command.h"

namespace ddp_doctor {

Action setup_run(CLI::App& app);
Action setup_check(CLI::App& app);
Action setup_bisect(CLI::App& app);
Action setup_compare(CLI::App& app);
Action setup_parity(CLI::App& app);
Action setup_report(CLI::App& app);
Action setup_explain(CLI::App& app);
Action setup_rules(CLI::App& app);
Action setup_env(CLI::App& app);
Action setup_demo(CLI::App& app);
Action setup_generate(CLI::App& app);

std::span<const Command> all_commands() {
  static constexpr Command kCommands[] = {
      {.name = "run",
       .summary = "Examine a program: do its replicas stay in sync, and if not, why",
       .example = "train.py",
       .setup = setup_run,
       .takes_words = true},
      {.name = "check",
       .summary = "Examine a program in CI: like run, but strict and brief",
       .example = "train.py",
       .setup = setup_check,
       .takes_words = true},
      {.name = "bisect",
       .summary = "Find the commit, or the module, that introduced a finding",
       .example = "--good v1.2 train.py",
       .setup = setup_bisect,
       .takes_words = true},
      {.name = "compare",
       .summary = "Run programs, or one program under several strategies, and compare them",
       .example = "train.py fixed.py",
       .setup = setup_compare,
       .takes_words = true},
      {.name = "parity",
       .summary = "Compare what the ranks compute with one process on the same samples",
       .example = "train.py",
       .setup = setup_parity,
       .takes_words = true},
      {.name = "report",
       .summary = "Show the report of recorded runs again, or merge reports",
       .example = "run1",
       .setup = setup_report},
      {.name = "explain",
       .summary = "Explain a rule, or an error message from standard input",
       .example = "wrapper-bypassed",
       .setup = setup_explain,
       .takes_words = true},
      {.name = "rules", .summary = "List the rules", .example = "", .setup = setup_rules},
      {.name = "env",
       .summary = "Show what is installed, and what ddp-doctor can examine here",
       .example = "",
       .setup = setup_env},
      {.name = "demo",
       .summary = "Run a built-in example of a bug",
       .example = "orphan",
       .setup = setup_demo},
      {.name = "generate",
       .summary = "Print the manual page, or the completions for a shell",
       .example = "bash",
       .setup = setup_generate,
       .hidden = true},
  };
  return kCommands;
}

}  // namespace ddp_doctor
