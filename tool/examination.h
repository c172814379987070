// SPDX-License-Identifier: BSD-3-Clause
// An examination: one or more runs, each of one program under one strategy in fresh processes, and
// the report of them all.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/report/report.h"
#include "tool/doctor.h"
#include "tool/program_options.h"
#include "tool/script_options.h"

namespace ddp_doctor {

// A program and the strategy it runs under.
using ExaminedProgram = std::variant<ScriptOptions, ProgramOptions>;

struct ExaminationOptions {
  std::optional<std::filesystem::path> out;  // keeps the records there
  // Rounds in which every run that completed is repeated, in turn, for its step times only.
  int repeats = 0;
};

// Runs them one after another; the verdict is about the first, the others are shown for comparison,
// or there is a verdict about each (kCompare). Throws Error if the first cannot be run at all (with
// the ranks' output), Interrupted on Ctrl-C before any of it could be seen, or at the second one;
// otherwise Ctrl-C ends the runs, and the report tells what they have shown. Progress goes to
// `streams.err` if it is a terminal.
Report examine(const std::vector<ExaminedProgram>& programs, Purpose purpose,
               const ExaminationOptions& options, Streams streams);

// Runs it, then under every strategy that a finding proposes, and if several findings propose one
// each, under all of these together.
Report examine_and_fix(const ExaminedProgram& program, const ExaminationOptions& options,
                       Streams streams);

// The same program under another strategy.
ExaminedProgram under(const ExaminedProgram& program, const std::string& strategy);

// Reads what an examination left in `folder`.
Report read_examination(const std::filesystem::path& folder);

}  // namespace ddp_doctor
