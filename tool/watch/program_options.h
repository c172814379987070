// SPDX-License-Identifier: BSD-3-Clause
// What is known of a program in Python, or of a command, before it is started.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/record/stated.h"
#include "lib/record/worker.h"
#include "tool/watch/stall.h"

namespace ddp_doctor {

class View;

struct ProgramOptions {
  std::filesystem::path program;   // train.py; empty: `words` are a command
  std::vector<std::string> words;  // its arguments, or the command and its arguments
  std::string python;              // --python; empty: the first that has torch
  std::string strategy = kAsIs;    // or what the probe applies to it
  int world_size = 2;              // ranks to start, where no command starts them
  std::int64_t every = 10;
  std::int64_t warmup = 50;
  Timeouts timeouts;
  std::map<std::string, std::string> environment;  // further settings
  StatedPlacements placement;                      // of ddp-doctor.toml
  int port = 0;                                    // MASTER_PORT; 0: any free one
  bool pass_on = true;                             // what the program writes

  std::int64_t steps = 0;       // that are examined, before the program goes on without; 0: all
  std::int64_t stop_after = 0;  // the run is ended when every rank has done so many; 0: never
  bool fail_fast = false;       // it is ended at the first error that is certain
  std::function<bool(const Finding&)> wanted;  // what is announced; empty: everything
  const View* view = nullptr;  // what it sees of the file system; null: all as it is
  // When it is ended, and why.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::string why_deadline;

  bool each_rank = false;  // a command that is started once for each rank

  bool is_command() const { return program.empty(); }
  // Otherwise a command does.
  bool doctor_starts_ranks() const { return !is_command() || each_rank; }
};

}  // namespace ddp_doctor
