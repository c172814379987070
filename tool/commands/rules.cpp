// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "lib/diagnose/rule.h"
#include "tool/cli/command.h"

namespace ddp_doctor {

Action setup_rules(CLI::App& app) {
  app.footer("Exit codes: 0, 2 could not run.");
  return [](const Call& call) {
    for (const Rule* rule : all_rules()) {
      call.streams.out << fmt::format("{} {:<24} {:<8} {}\n", rule->code, rule->name,
                                      name_of(rule->severity), rule->headline);
    }
    return exit_code::kHealthy;
  };
}

}  // namespace ddp_doctor
