// SPDX-License-Identifier: BSD-3-Clause
// Renderers: a report in, text out, nothing else. Each writes to the stream that it is given.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

#include "lib/report/value/report.h"

namespace ddp_doctor {

struct RenderOptions {
  bool color = false;
  // Text and Markdown: the findings and the verdict, without figures that differ from run to run.
  bool brief = false;
  // The mildest severity that fails the gate; empty: none does.
  std::optional<Severity> fail_on = Severity::kWarning;
  // The root of the user's repository and the folder in which the program ran. Formats for servers
  // name source files relative to that root. Empty: as in the record.
  std::filesystem::path root = {};
  std::filesystem::path folder = {};
  bool terminal = false;  // text: stdout is a terminal: findings stand last, nearest to the prompt
  bool verbose = false;   // text: DDP's runtime fields, per-strategy step tables, evidence
};

// For people. Fits a screen, unless verbose. The verdict is the last line.
void render_text(const Report& report, const RenderOptions& options, std::ostream& out);

// To be pasted into a pull request.
void render_markdown(const Report& report, const RenderOptions& options, std::ostream& out);

// For a browser: one self-contained file, for light and dark mode. Also well-formed XML.
void render_html(const Report& report, const RenderOptions& options, std::ostream& out);

// For programs: docs/report.schema.json. Numbers that JSON cannot hold (NaN, infinity) are strings.
void render_json(const Report& report, const RenderOptions& options, std::ostream& out);

// A finding as in the JSON report.
nlohmann::ordered_json finding_as_json(const Finding& finding);

// The table of formats.cpp.
struct Format {
  std::string_view name;
  std::string_view suffix;  // of files in this format; empty: none
  void (*render)(const Report& report, const RenderOptions& options, std::ostream& out);
};

// All of them; the first is the default.
std::span<const Format> all_formats();
// Null if there is none of that name or suffix.
const Format* find_format(std::string_view name_or_suffix);

}  // namespace ddp_doctor
