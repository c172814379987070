// Renderers: a report in, text out, nothing else. Each writes to the stream that it is given.
#pragma once

#include <ostream>

#include "lib/report/report.h"

namespace ddp_doctor {

struct TextStyle {
  bool color = false;
};

// For people. The verdict is the last line.
void render_text(const Report& report, const TextStyle& style, std::ostream& out);

// To be pasted into a pull request.
void render_markdown(const Report& report, std::ostream& out);

// For programs: docs/report.schema.json. Numbers that JSON cannot hold (NaN, infinity) are strings.
void render_json(const Report& report, std::ostream& out);

}  // namespace ddp_doctor
