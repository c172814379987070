// SPDX-License-Identifier: BSD-3-Clause
// An examination: one or more runs, each of one program under one strategy in fresh processes, and
// the report of them all.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/report/value/report.h"
#include "tool/launch/script_options.h"
#include "tool/system/streams.h"
#include "tool/watch/program_options.h"

namespace ddp_doctor {

// A program and the strategy it runs under.
using ExaminedProgram = std::variant<ScriptOptions, ProgramOptions>;

// How long all trials of fixes together may take.
struct FixBudget {
  double times = 5;      // the first run
  double seconds = 300;  // or these, whichever is longer

  std::chrono::steady_clock::duration of(std::chrono::steady_clock::duration first_run) const;
  // "600" or "3x". Throws Error.
  static FixBudget from(const std::string& text);
};

struct ExaminationOptions {
  std::optional<std::filesystem::path> out;  // keeps the records there
  // Rounds in which every run that completed is repeated, in turn, for its step times only.
  int repeats = 0;
  bool in_place = false;  // runs after the first are not isolated from the user's folders
  FixBudget budget;
  bool quiet = false;  // no line for each run
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

// Runs it, then once more with other instructions, which round differently: Report::rounding.
Report examine_rounding(const ProgramOptions& program, const ExaminationOptions& options,
                        Streams streams);

// The same program under another strategy.
ExaminedProgram under(const ExaminedProgram& program, const std::string& strategy);

// One of its runs, which is the `index`th.
RunReport read_run(const std::filesystem::path& folder, const RunInfo& run, int index);

// Reads what an examination left in `folder`. What is stated of placements, if anything is,
// replaces what was stated when it ran.
Report read_examination(const std::filesystem::path& folder, const StatedPlacements& stated = {});

}  // namespace ddp_doctor
