// SPDX-License-Identifier: BSD-3-Clause
// Ends everything that descends from a launch, whatever ends ddp-doctor.
//
// Who descends from it is known in two ways. While ddp-doctor lives, it is the subreaper: what a
// program leaves behind becomes its child, so the tree of processes below it is complete. When
// ddp-doctor was killed, that tree is gone; then a watchman, a process forked for this purpose,
// finds whom to end by a setting that every program of the launch gets in its environment. What
// ddp-doctor started directly is ended by the kernel besides (PR_SET_PDEATHSIG), without delay.
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

  // To be put into the environment of whatever is started: a name and a value.
  const std::string& name() const { return name_; }
  const std::string& value() const { return value_; }

  // A process that is there for several launches, and is left alone.
  void spare(pid_t pid) { spared_ = pid; }

  // Ends what descends from the launch: asks by SIGTERM those who clean up behind others (Python's
  // resource tracker unlinks semaphores), and a moment later ends by SIGKILL who is left. What
  // were direct children become zombies, for the caller to reap.
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
