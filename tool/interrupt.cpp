#include "tool/interrupt.h"

#include <cstddef>
#include <iterator>

namespace ddp_doctor {
namespace {

volatile sig_atomic_t requested_signal = 0;

void note(int signal) { requested_signal = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  struct sigaction action = {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &action, &before_[i]);
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptGuard::requested() const { return requested_signal != 0; }

}  // namespace ddp_doctor
