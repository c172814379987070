// SPDX-License-Identifier: BSD-3-Clause
// A rank's record: read, judged and rendered.
#include <sstream>

#include "lib/error.h"
#include "lib/record/run_info.h"
#include "lib/report/render/render.h"
#include "tests/fuzz/input.h"
#include "tool/examine/examination.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddp_doctor;
  const auto folder = written(data, size, "run/00-as-is/rank-00000.sqlite").parent_path();
  if (!std::filesystem::exists(folder / "run.json")) {
    RunInfo run;
    run.world_size = 2;
    run.program = "train.py";
    save_run_info(folder, run);
  }
  try {
    std::ostringstream out;
    render_text(read_examination(folder.parent_path()), {}, out);
  } catch (const Error&) {
  }
  return 0;
}
