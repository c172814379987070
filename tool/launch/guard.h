// SPDX-License-Identifier: BSD-3-Clause
// Ends every process that a launch started, directly or not, however ddp-doctor ends.
//
// These processes are known in two ways. While ddp-doctor runs, it is the subreaper: processes that
// a program leaves behind become its children, so the process tree below it is complete. If
// ddp-doctor is killed, that tree is gone; then a watchman, a process forked for this purpose,
// finds the processes by an environment variable that every program of the launch gets. The kernel
// also kills what ddp-doctor started directly (PR_SET_PDEATHSIG), without delay.
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp_doctor {

class LaunchGuard {
 public:
  // Throws Error if no process can be started.
  LaunchGuard();
  ~LaunchGuard();
  LaunchGuard(const LaunchGuard&) = delete;
  LaunchGuard& operator=(const LaunchGuard&) = delete;

  // The environment variable for every program that is started.
  const std::string& name() const { return name_; }
  const std::string& value() const { return value_; }

  // A process that serves several launches, and is not ended.
  void spare(pid_t pid) { spared_ = pid; }

  // Ends every process of the launch: sends SIGTERM first, for those that clean up after others
  // (Python's resource tracker unlinks semaphores), and SIGKILL a moment later. Direct children
  // become zombies, for the caller to reap.
  void end_all();
  // `pid` with its process group, at once.
  static void end_one(pid_t pid);

 private:
  std::string setting() const { return name_ + "=" + value_; }

  std::string name_ = "DDP_DOCTOR_LAUNCH";
  std::string value_;
  pid_t watchman_ = 0;
  pid_t spared_ = 0;
  int lifeline_ = -1;  // closes with this process, which tells the watchman
};

}  // namespace ddp_doctor
