// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/ddp/observer.h"

namespace ddp_doctor {

std::shared_ptr<TrainingObserver>& training_observer() {
  thread_local std::shared_ptr<TrainingObserver> observer;
  return observer;
}

int& unobserved_wrappers() {
  thread_local int count = 0;
  return count;
}

}  // namespace ddp_doctor
