// SPDX-License-Identifier: BSD-3-Clause
// What `run`, `check` and `bisect` examine: the flags that name it, and its examination.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tool/cli/command.h"
#include "tool/cli/program_flags.h"

namespace ddp_doctor {

struct ProgramArguments {
  std::filesystem::path program;   // empty: the words after "--" are a command
  std::vector<std::string> words;  // the program's own, before those after "--"
  // Of a TorchScript program: the first is examined, the others run beside it.
  std::vector<std::string> strategies = {"ddp", "ddp-find-unused", "ddp-static-graph"};
  ProgramFlags flags;
  std::optional<std::filesystem::path> out;
};

struct ExaminationMode {
  bool fix = false;     // then run it with the fixes that the findings propose
  int repeats = 0;      // timed runs of each of them
  bool pass_on = true;  // the program's output
  std::function<bool(const Finding&)> wanted = {};  // findings to announce; empty: all
  TrialFlags trials = {};
  bool rounding = false;  // then run it once more, rounding differently
};

// Adds PROGRAM and the flags that say how it is run.
void add_program_arguments(CLI::App& app, ProgramArguments& arguments);

// Examines it, calls `deliver` with the report and returns its result. As one rank of a job that
// another launcher started, it examines that rank, and only the reporting rank calls `deliver`.
// Throws Error, Interrupted and, for a wrong command line, CLI::ParseError.
int examine_program(const CLI::App& app, const ProgramArguments& arguments,
                    const ExaminationMode& how, const Call& call,
                    const std::function<int(Report)>& deliver);

}  // namespace ddp_doctor
