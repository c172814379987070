// SPDX-License-Identifier: BSD-3-Clause
// The ranks against one process that is fed their samples: two programs' runs, one report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tool/examine/examination.h"
#include "tool/examine/runs.h"

namespace ddp_doctor {

struct ParityOptions {
  std::int64_t steps = 3;                    // the first ones, that are compared
  std::int64_t budget_mib = 4096;            // what the ranks may keep on disk
  std::vector<std::string> reference_words;  // further arguments of the one process
};

// Runs the ranks for a few steps, as the next run of the report, then the reference. Throws
// CutShort.
void add_beside_one_process(Runs& runs, const ExaminedProgram& program,
                            const ParityOptions& parity);

// The report of that run alone. As examine() otherwise.
Report examine_parity(const ExaminedProgram& program, const ParityOptions& parity,
                      const ExaminationOptions& options, Streams streams);

// What the reference of a run measured, in an examination's folder.
std::filesystem::path parity_figures(const std::filesystem::path& examination, int run);

}  // namespace ddp_doctor
