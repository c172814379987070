// SPDX-License-Identifier: BSD-3-Clause
// While it exists, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process.
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

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[3];
};

}  // namespace ddp_doctor
