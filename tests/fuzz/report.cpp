// SPDX-License-Identifier: BSD-3-Clause
// A JSON report, merged with itself and rendered.
#include <sstream>

#include "lib/error.h"
#include "lib/report/merge/read_json.h"
#include "lib/report/render/render.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto report =
        ddp_doctor::read_report({reinterpret_cast<const char*>(data), size}, "report.json");
    std::ostringstream out;
    for (const auto render : {&ddp_doctor::render_text, &ddp_doctor::render_markdown,
                              &ddp_doctor::render_html, &ddp_doctor::render_json})
      render(report, {}, out);
  } catch (const ddp_doctor::Error&) {
  }
  return 0;
}
