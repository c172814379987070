// SPDX-License-Identifier: BSD-3-Clause
// The command table is data: each command adds its flags to a CLI11 subcommand and returns what to
// do when chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tool/cli/doctor.h"

namespace ddp_doctor {

// What a command gets besides its flags.
struct Call {
  Streams streams;
  // The words between the command's name and the first "--", as they were given.
  std::vector<std::string> args;
  // The words after the first "--" of `run`, `check`, `bisect` and `compare`, which are not ours to
  // read; nothing without a "--".
  std::optional<std::vector<std::string>> words;
};

using Action = std::function<int(const Call&)>;

struct Command {
  const char* name;
  const char* summary;
  Action (*setup)(CLI::App& app);
  bool hidden = false;  // --help does not show it
};

Action setup_run(CLI::App& app);
Action setup_check(CLI::App& app);
Action setup_bisect(CLI::App& app);
Action setup_compare(CLI::App& app);
Action setup_report(CLI::App& app);
Action setup_explain(CLI::App& app);
Action setup_rules(CLI::App& app);
Action setup_env(CLI::App& app);
Action setup_demo(CLI::App& app);
Action setup_generate(CLI::App& app);

std::vector<std::string> demo_names();

}  // namespace ddp_doctor
