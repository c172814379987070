#include "probes/ddp/observer.h"

namespace ddp_doctor {

std::shared_ptr<TrainingObserver>& training_observer() {
  thread_local std::shared_ptr<TrainingObserver> observer;
  return observer;
}

}  // namespace ddp_doctor
