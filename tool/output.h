// How a report leaves the tool: flags that `run`, `report` and `demo` share, and the exit code that
// follows from it.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/report/report.h"
#include "tool/doctor.h"

namespace ddp_doctor {

struct OutputOptions {
  std::string format = "text";
  std::vector<std::filesystem::path> reports;  // further files, type by suffix
  std::string fail_on = "warning";
  std::string color = "auto";
  std::vector<std::string> select;
  std::vector<std::string> ignore;
  bool quiet = false;
};

void add_output_flags(CLI::App& app, OutputOptions& options);

// Prints and writes `report` as asked; returns the exit code.
int deliver(Report report, const OutputOptions& options, Streams streams);

// Gives every option of `app` its default in the environment: --nproc-per-node is
// DDP_DOCTOR_NPROC_PER_NODE.
void add_environment_defaults(CLI::App& app);

}  // namespace ddp_doctor
