// SPDX-License-Identifier: BSD-3-Clause
// How a report leaves the tool: flags that the commands share, and the exit code that
// follows from it.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/report/render/render.h"
#include "tool/cli/doctor.h"

namespace ddp_doctor {

struct OutputOptions {
  std::string format = "text";
  std::vector<std::string>
      reports;  // further files, type by suffix: "r.json", "gitlab=quality.json"
  std::string fail_on = "warning";
  std::string inconclusive = "fail";  // or "pass": exit code 0 instead of 3
  std::string color = "auto";
  std::vector<std::string> select;
  std::vector<std::string> ignore;
  bool quiet = false;
  int verbose = 0;     // how often -v was given
  bool brief = false;  // stdout as text: only findings that fail, and the verdict
};

void add_output_flags(CLI::App& app, OutputOptions& options);
// Of a gate: whether an inconclusive run passes.
void add_inconclusive_flag(CLI::App& app, OutputOptions& options);

// Before anything runs: throws Error if a file of --report could not be written, and removes files
// of an earlier call, so that they are not mistaken for this call's if it fails.
void prepare_reports(const OutputOptions& options);

// How it is rendered for stdout.
RenderOptions rendering_of(const OutputOptions& options, const Streams& streams);

// In a bisection, a rule that --select names fails whatever its severity, unless --fail-on is
// given.
void let_selected_decide(const CLI::App& app, OutputOptions& options);

// By --select and --ignore.
bool is_selected(const Finding& finding, const OutputOptions& options);
// Removes the findings that they exclude.
void keep_selected(Report& report, const OutputOptions& options);
// For a report whose findings were selected.
int exit_code_of(const Report& report, const OutputOptions& options);

// Prints and writes `report` as asked; returns the exit code.
int deliver(Report report, const OutputOptions& options, Streams streams);

// Gives every option of `app` its default in the environment: --nproc-per-node is
// DDP_DOCTOR_NPROC_PER_NODE.
void add_environment_defaults(CLI::App& app);

}  // namespace ddp_doctor
