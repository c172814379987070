// SPDX-License-Identifier: BSD-3-Clause
// The figures of a report as tables for any renderer: by step, and the outcome of each run.
#pragma once

#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

struct Figures {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::size_t omitted = 0;  // rows, after the first half
  bool by_step = false;
};

// Long runs are shown by their first and last steps. Tables without rows are omitted.
std::vector<Figures> figures_of(const Report& report);

// The mesh in its caption, and how many parameters lie how on it; without rows in plain data
// parallelism.
Figures mesh_figures(const RunReport& run);

// DDP's logging data: its fields at construction and at the last sampled iteration.
Figures ddp_fields(const RunReport& run);

// Each compared step against one process.
Figures parity_steps(const RunReport& run);

}  // namespace ddp_doctor
