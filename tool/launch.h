// Starts the ranks of one run, one process each, and watches them to their end.
//
// Every rank runs in a process group of its own and dies with this process (PR_SET_PDEATHSIG), so
// nothing is left behind whatever ends the examination: a normal end, a crash of one rank, a stall,
// Ctrl-C, or SIGKILL of ddp-doctor.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lib/record/run_info.h"

namespace ddp_doctor {

struct Launch {
  std::vector<std::string>
      command;  // the same for every rank; command[0] is the path of the executable
  int world_size = 1;
  int port = 0;  // MASTER_PORT; 0: ranks meet otherwise
  std::filesystem::path
      folder;  // the run's folder: progress maps are read there, rank-NNNNN.log written
  std::chrono::seconds stall_timeout;  // no rank moved for so long: the run is ended
  std::function<void(std::int64_t step)> on_progress;  // may be empty
};

// Blocks until every rank has ended. Throws Interrupted, all ranks ended, if SIGINT or SIGTERM
// came; Error if a rank could not be started.
std::vector<RankExit> launch_ranks(const Launch& launch);

}  // namespace ddp_doctor
