// SPDX-License-Identifier: BSD-3-Clause
// What `run`, `check` and `bisect` examine: the flags that name it, and its examination.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tool/command.h"
#include "tool/program_flags.h"

namespace ddp_doctor {

struct ProgramArguments {
  std::filesystem::path program;   // empty: what stands after "--" is a command
  std::vector<std::string> words;  // the program's own, before those after "--"
  // Of a TorchScript program: the first is examined, the others run beside it.
  std::vector<std::string> strategies = {"ddp", "ddp-find-unused", "ddp-static-graph"};
  ProgramFlags flags;
  std::optional<std::filesystem::path> out;
};

struct ExaminationMode {
  bool fix = false;     // then try what the findings prescribe
  int repeats = 0;      // and time it
  bool pass_on = true;  // what the program writes
};

// Adds PROGRAM and everything that says how it is run.
void add_program_arguments(CLI::App& app, ProgramArguments& arguments);

// Examines it and hands over the report; gives what `deliver` returns. As one rank of a job that
// somebody else started, it examines that rank, and `deliver` is called in the one that reports.
// Throws Error, Interrupted and, of a wrong command line, CLI::ParseError.
int examine_program(const CLI::App& app, const ProgramArguments& arguments,
                    const ExaminationMode& how, const Call& call,
                    const std::function<int(Report)>& deliver);

}  // namespace ddp_doctor
