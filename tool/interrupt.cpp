// SPDX-License-Identifier: BSD-3-Clause
#include "tool/interrupt.h"

#include <cstddef>
#include <iterator>

namespace ddp_doctor {
namespace {

volatile sig_atomic_t requested_signal = 0;
int guards = 0;

void note(int signal) { requested_signal = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  if (guards++ == 0) requested_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    // nohup's wish is respected. SIGINT is not asked: shells have their background jobs ignore it,
    // and `kill -INT` means it.
    const bool ignored = kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN;
    if (!ignored) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  --guards;
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
}

int InterruptGuard::signal() const { return requested_signal; }

}  // namespace ddp_doctor
