// SPDX-License-Identifier: BSD-3-Clause
// What a rank that was killed, or that writes where it should not, leaves in the files that it
// maps: the progress map, the call log, the steps that wait.
#include "lib/record/progress.h"

#include <limits>

#include "lib/error.h"
#include "lib/record/call_log.h"
#include "lib/record/waiting_steps.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = ddp_doctor::written(data, size, "rank-00000.calls");
  ddp_doctor::read_progress(file);
  ddp_doctor::read_waiting_steps(file, std::numeric_limits<std::int64_t>::min());
  ddp_doctor::read_waiting_steps(file, 30);
  try {
    ddp_doctor::read_calls(file);
  } catch (const ddp_doctor::Error&) {
  }
  return 0;
}
