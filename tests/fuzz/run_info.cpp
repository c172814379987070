// SPDX-License-Identifier: BSD-3-Clause
// run.json, which the launcher writes.
#include "lib/record/run_info.h"

#include "lib/error.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = ddp_doctor::written(data, size, "run.json");
  try {
    ddp_doctor::load_run_info(file.parent_path());
  } catch (const ddp_doctor::Error&) {
  }
  return 0;
}
