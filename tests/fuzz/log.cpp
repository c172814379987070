// SPDX-License-Identifier: BSD-3-Clause
// A pasted log: ddp-doctor explain -.
#include <sstream>

#include "lib/explain/explanation.h"
#include "lib/report/render/explanations.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto explained = ddp_doctor::explain_log({reinterpret_cast<const char*>(data), size});
  std::ostringstream out;
  render_text(explained, out);
  render_json(explained, "0", nullptr, out);
  return 0;
}
