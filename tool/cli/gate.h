// SPDX-License-Identifier: BSD-3-Clause
// What a gate expects of a program, beyond no findings: how far weights may differ, which findings
// are accepted, and the values of an earlier run.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/gate/baseline.h"
#include "lib/report/render/render.h"

namespace ddp_doctor {

struct GateOptions {
  double max_drift = 0.0;  // 0: bit-identical
  std::vector<std::string> suppressions;
  std::optional<std::filesystem::path> baseline;
  bool update_baseline = false;
  std::optional<Tolerance> tolerance;  // empty: the baseline's own

  // A new baseline needs another run of the program.
  bool measures_rounding() const { return update_baseline && tolerance == Tolerance::kMeasured; }
};

void add_gate_flags(CLI::App& app, GateOptions& options);

// Checks the options before anything runs. Throws Error.
void check_gate(const GateOptions& options);

// Removes tolerated and suppressed findings from the report, and adds differences from the
// baseline, or writes a new baseline if nothing fails. `messages`: what was written. Throws Error.
void apply_gate(Report& report, const GateOptions& options, const RenderOptions& rendering,
                std::ostream& messages);

}  // namespace ddp_doctor
