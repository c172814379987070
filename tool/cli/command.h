// SPDX-License-Identifier: BSD-3-Clause
// The command table is data (tool/commands/all.cpp): each command adds its flags to a CLI11
// subcommand and returns what to do when chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/record/stated.h"
#include "tool/cli/doctor.h"

namespace ddp_doctor {

// What a command gets besides its flags.
struct Call {
  Streams streams;
  // The words between the command's name and the first "--", as they were given.
  std::vector<std::string> args;
  // The words after the first "--" of a command that takes a program's words, which are not ours to
  // read; nothing without a "--".
  std::optional<std::vector<std::string>> words;
  StatedPlacements placement;  // of ddp-doctor.toml
};

using Action = std::function<int(const Call&)>;

struct Command {
  const char* name;
  const char* summary;
  const char* example;  // what may follow its name
  Action (*setup)(CLI::App& app);
  bool takes_words = false;  // of a program, after "--"
  bool hidden = false;       // --help does not show it
};

std::span<const Command> all_commands();

std::vector<std::string> demo_names();

}  // namespace ddp_doctor
