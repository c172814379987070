// SPDX-License-Identifier: BSD-3-Clause
// As one rank's launcher in a job that torchrun (or another launcher) started: each rank's program
// runs under a ddp-doctor of its own, and they meet in a folder.
//
//   torchrun --no-python --nproc-per-node=2 ddp-doctor run train.py
//
// The one whose local rank is 0 reports, once the others of this machine have ended; its exit code
// is the verdict. The others say nothing, and end as their program did.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lib/report/report.h"
#include "tool/doctor.h"
#include "tool/program_options.h"

namespace ddp_doctor {

// Who this process is in a job that somebody else started.
struct JobRank {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // ranks on this machine
  std::string job;           // the same text in all ranks of the job's present attempt, here
};

// From the environment; nothing if it does not say that this is a rank.
std::optional<JobRank> own_rank();

// Examines the own rank; `deliver` prints the report, where it is this process's to print, and
// gives the exit code. `out` keeps the records there. Throws Error and Interrupted as run_program()
// does.
int examine_own_rank(const ProgramOptions& options, const JobRank& self,
                     const std::optional<std::filesystem::path>& out, Streams streams,
                     const std::function<int(Report)>& deliver);

}  // namespace ddp_doctor
