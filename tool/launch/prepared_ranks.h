// SPDX-License-Identifier: BSD-3-Clause
// A rank worker that has loaded LibTorch, and forks ranks on request. Ranks that it forks start
// within milliseconds instead of half a second of processor time each, for examinations of many
// short runs.
//
// The forked ranks become our children as if we had started them (guard.h makes us the subreaper).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tool/launch/launch.h"

namespace ddp_doctor {

class PreparedRanks {
 public:
  PreparedRanks() = default;
  ~PreparedRanks();
  PreparedRanks(const PreparedRanks&) = delete;
  PreparedRanks& operator=(const PreparedRanks&) = delete;

  // As start_process(), which it falls back to where the worker cannot fork. The first call starts
  // the worker, by the same command and environment.
  pid_t start(const std::vector<std::string>& command, const Environment& environment, int output);

  // The process that waits, which no run ends; 0: there is none.
  pid_t process() const { return process_; }

 private:
  void prepare(const std::string& executable, const Environment& environment);
  // -1 where the worker cannot.
  pid_t ask(const std::vector<std::string>& command, const Environment& environment, int output);
  void give_up();

  pid_t process_ = 0;
  int socket_ = -1;
  std::string executable_;
  Environment environment_;  // the worker's own
  bool given_up_ = false;
};

}  // namespace ddp_doctor
