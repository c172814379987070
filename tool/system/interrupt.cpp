// SPDX-License-Identifier: BSD-3-Clause
#include "tool/system/interrupt.h"

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace ddp_doctor {
namespace {

constexpr std::int64_t kOneRequest = 200'000'000;  // ns in which several signals count as one

volatile sig_atomic_t requested_signal = 0;
volatile sig_atomic_t requested_again = 0;
volatile sig_atomic_t state_requested = 0;
bool repetition_expected = false;
volatile std::int64_t requested_at = 0;
int guards = 0;

std::int64_t now_ns() {  // async-signal-safe
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void note(int signal) {
  if (requested_signal == 0) {
    requested_at = now_ns();
  } else if (now_ns() - requested_at > kOneRequest) {
    requested_again = 1;
  }
  requested_signal = signal;
}

void note_state(int) { state_requested = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  if (guards++ == 0) {
    requested_signal = 0;
    requested_again = 0;
    state_requested = 0;
    repetition_expected = false;
  }
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
  action.sa_handler = note_state;
  sigaction(SIGUSR1, &action, &before_usr1_);
}

InterruptGuard::~InterruptGuard() {
  --guards;
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
  sigaction(SIGUSR1, &before_usr1_, nullptr);
}

int InterruptGuard::signal() const { return requested_signal; }

bool InterruptGuard::insisted() { return requested_again != 0 && !repetition_expected; }

void InterruptGuard::expect_repetition() { repetition_expected = true; }

void InterruptGuard::let_go() {
  for (const int signal : kSignals) ::signal(signal, SIG_DFL);
}

bool InterruptGuard::state_wanted() {
  if (state_requested == 0) return false;
  state_requested = 0;
  return true;
}

}  // namespace ddp_doctor
