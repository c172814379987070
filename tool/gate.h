// SPDX-License-Identifier: BSD-3-Clause
// What a gate expects of a program, beyond that nothing is found: how far weights may part, what is
// known and accepted, and what it computed before.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/render.h"

namespace ddp_doctor {

struct GateOptions {
  double max_drift = 0.0;  // 0: not one bit
  std::vector<std::string> suppressions;
  std::optional<std::filesystem::path> baseline;
  bool update_baseline = false;
};

void add_gate_flags(CLI::App& app, GateOptions& options);

// What is wrong with the options themselves is said before anything runs. Throws Error.
void check_gate(const GateOptions& options);

// Takes from the report what is tolerated or suppressed, and adds what parts from the baseline, or
// writes that anew where nothing else fails. `messages` gets what was written. Throws Error.
void apply_gate(Report& report, const GateOptions& options, const RenderOptions& rendering,
                std::ostream& messages);

}  // namespace ddp_doctor
