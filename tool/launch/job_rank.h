// SPDX-License-Identifier: BSD-3-Clause
// ddp-doctor as the launcher of one rank, in a job that torchrun (or another launcher) started:
// each rank's program runs under its own ddp-doctor process, and these share a folder.
//
//   torchrun --no_python --nproc_per_node=2 ddp-doctor run train.py
//
// The process with rank 0 prints the report, once the other ranks of its machine have ended;
// its exit code is the verdict. The others print nothing, and exit as their program did.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lib/report/value/report.h"
#include "tool/system/streams.h"
#include "tool/watch/program_options.h"

namespace ddp_doctor {

// Which rank this process is, in a job that another launcher started.
struct JobRank {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // ranks on this machine
  std::string job;           // the same text in all ranks of the job's present attempt, here
};

// From the environment; nothing if it does not say that this is a rank.
std::optional<JobRank> own_rank();

// Examines this rank; `deliver` prints the report, if this process is to print it, and returns the
// exit code. `out` keeps the records there. Throws Error and Interrupted as run_program()
// does.
int examine_own_rank(const ProgramOptions& options, const JobRank& self,
                     const std::optional<std::filesystem::path>& out, Streams streams,
                     const std::function<int(Report)>& deliver);

}  // namespace ddp_doctor
