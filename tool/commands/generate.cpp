// SPDX-License-Identifier: BSD-3-Clause
// Not in --help: for building packages, and for a shell to evaluate.
#include "tool/cli/command.h"
#include "tool/cli/command_line.h"
#include "tool/cli/completions.h"
#include "tool/cli/man_page.h"

namespace ddp_doctor {

Action setup_generate(CLI::App& app) {
  auto what = std::make_shared<std::string>();
  app.add_option("what", *what, "The manual page, or completions for a shell")
      ->required()
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}));
  return [what, &app](const Call& call) {
    const CommandLine line = described(*app.get_parent());
    call.streams.out << (*what == "man"    ? man_page(line)
                         : *what == "bash" ? bash_completion(line)
                         : *what == "zsh"  ? zsh_completion(line)
                                           : fish_completion(line));
    return exit_code::kHealthy;
  };
}

}  // namespace ddp_doctor
