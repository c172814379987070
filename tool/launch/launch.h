// SPDX-License-Identifier: BSD-3-Clause
// Starts the programs of one run and watches them to their end: one per rank, or one command that
// starts the ranks itself.
//
// No process is left, however the examination ends: normally, by a crash of one rank, a stall,
// Ctrl-C, or SIGKILL of ddp-doctor (guard.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lib/record/run_info.h"
#include "tool/watch/stall.h"

namespace ddp_doctor {

class PreparedRanks;
class View;

using Environment = std::map<std::string, std::string>;

// This process's own.
Environment own_environment();

struct Program {
  std::vector<std::string> command;  // command[0] is the path of the executable
  Environment environment;           // all of it
  std::optional<int> rank;           // nothing: it starts the ranks itself, at any depth
  std::string prefix;                // of each line that is passed on
};

struct Launch {
  std::vector<Program> programs;
  PreparedRanks* prepared = nullptr;  // starts them; null: each is executed anew
  // The run's folder: progress maps and the notes of processes are read there, logs written.
  std::filesystem::path folder;
  Timeouts timeouts;
  int world_size = 0;  // ranks of the job, where it is known; 0: as the processes' notes say
  std::ostream* pass_on = nullptr;                     // gets what the programs write, live
  std::function<void(std::int64_t step)> on_progress;  // may be empty
  std::function<void()> meanwhile;                     // called again and again; may be empty
  // Whether a rank that another ddp-doctor started failed; may be empty.
  std::function<bool()> peer_fell;
  // Whether they are to be ended now, and why; may be empty.
  std::function<std::optional<Ending>()> ends;
  const View* view = nullptr;  // what the programs see of the file system; null: all as it is
  // When all of them are ended, and why.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::string why_deadline;
};

struct Launched {
  std::vector<RankExit> exits;      // by rank, of the ranks that are known
  std::optional<RankExit> command;  // the end of a program that started the ranks
  std::vector<std::string> notes;   // anything unusual, for the report
  Ending ending = Ending::kOwn;
  std::int64_t ended_ns = 0;  // RunInfo
};

// Blocks until every program has ended: by itself, or because SIGINT, SIGHUP or SIGTERM came.
// Throws Interrupted, all of them ended, at the second of these signals; Error if one could not be
// started.
Launched launch(const Launch& launch);

}  // namespace ddp_doctor
