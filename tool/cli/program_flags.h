// SPDX-License-Identifier: BSD-3-Clause
// Flags that say how a program is run, whichever kind it is: what `run` and `compare` share.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tool/examine/examination.h"

namespace ddp_doctor {

inline constexpr char kOnlyScripts[] = "TorchScript programs only";
inline constexpr char kOnlyPrograms[] = "Programs in Python and commands only";

// Those whose default, or meaning, depends on the kind of the program are optional here.
struct ProgramFlags {
  ScriptOptions script;
  ProgramOptions program;
  int world_size = 2;
  int port = 0;
  std::optional<std::int64_t> every;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> timeout_s;
  std::optional<std::int64_t> stall_after_s;
};

// Of commands that run a program more than once.
struct TrialFlags {
  bool in_place = false;
  std::string fix_budget;
};
ExaminationOptions examination_options(const std::optional<std::filesystem::path>& out, int repeats,
                                       bool quiet, const TrialFlags& flags);
void add_in_place_flag(CLI::App& app, TrialFlags& flags);
void add_fix_budget_flag(CLI::App& app, TrialFlags& flags);

void add_program_flags(CLI::App& app, ProgramFlags& flags);

// For a TorchScript program. Throws Error if a flag was given that has no meaning for it, or any
// `words`: it takes no arguments.
ScriptOptions script_options(const CLI::App& app, const ProgramFlags& flags,
                             const std::filesystem::path& program,
                             const std::vector<std::string>& words);
// A program in Python and its arguments; without a program, `words` are a command.
ProgramOptions program_options(const CLI::App& app, const ProgramFlags& flags,
                               const std::filesystem::path& program,
                               const std::vector<std::string>& words);

// Given on the command line or in ddp-doctor.toml. A value in the environment is a default, which
// programs that it does not concern ignore.
bool was_given(const CLI::App& app, const std::string& flag);
// Any flag of `group`.
bool was_any_given(const CLI::App& app, const std::string& group);

}  // namespace ddp_doctor
