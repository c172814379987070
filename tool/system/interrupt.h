// SPDX-License-Identifier: BSD-3-Clause
// While it exists, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process, and SIGUSR1
// asks for the state of the run.
#pragma once

#include <signal.h>

namespace ddp_doctor {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool requested() const { return signal() != 0; }
  int signal() const;  // the latest one, 0 before the first
  // A second one came a moment after the first: not one that was sent to the process and to its
  // group, as `timeout` does.
  static bool insisted();
  // A launcher above us repeats the user's signal: that is not insisting.
  static void expect_repetition();
  // From here on a further signal ends this process at once: no process is left to be ended.
  static void let_go();
  // Whether SIGUSR1 came since the last call.
  static bool state_wanted();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[3], before_usr1_;
};

}  // namespace ddp_doctor
