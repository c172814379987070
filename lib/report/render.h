// SPDX-License-Identifier: BSD-3-Clause
// Renderers: a report in, text out, nothing else. Each writes to the stream that it is given.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

#include "lib/report/report.h"

namespace ddp_doctor {

struct RenderOptions {
  bool color = false;
  // Text and Markdown: the findings and the verdict, without figures that differ from run to run.
  bool brief = false;
  // The mildest severity that fails the gate; nothing: none does.
  std::optional<Severity> fail_on = Severity::kWarning;
  // The root of the user's repository, and the folder in which the program ran: formats that a
  // server links to source files name them from that root. Empty: as the record has them.
  std::filesystem::path root = {};
  std::filesystem::path folder = {};
  bool verbose = false;  // text: DDP's runtime fields, per-strategy step tables, evidence
};

// For people. The verdict is the last line.
void render_text(const Report& report, const RenderOptions& options, std::ostream& out);

// To be pasted into a pull request.
void render_markdown(const Report& report, const RenderOptions& options, std::ostream& out);

// For a browser: one file that shows all by itself, in light and dark. Well-formed XML, too.
void render_html(const Report& report, const RenderOptions& options, std::ostream& out);

// For programs: docs/report.schema.json. Numbers that JSON cannot hold (NaN, infinity) are strings.
void render_json(const Report& report, const RenderOptions& options, std::ostream& out);

// A finding as it stands in there.
nlohmann::ordered_json finding_as_json(const Finding& finding);

// For test reports of Jenkins and GitLab: a test case for each rule. Nothing that differs from run
// to run.
void render_junit(const Report& report, const RenderOptions& options, std::ostream& out);

// For code scanning: SARIF 2.1.0. A finding keeps its fingerprint while lines move.
void render_sarif(const Report& report, const RenderOptions& options, std::ostream& out);

// Workflow commands of GitHub Actions: at most 10 annotations of each kind are shown in a step, so
// nine findings and the count of the rest. The verdict is the last line.
void render_github(const Report& report, const RenderOptions& options, std::ostream& out);

// GitLab's code quality report (a subset of Code Climate's).
void render_gitlab(const Report& report, const RenderOptions& options, std::ostream& out);

// For the textfile collector of Prometheus' node exporter.
void render_prometheus(const Report& report, const RenderOptions& options, std::ostream& out);

struct Format {
  std::string_view name;
  std::string_view suffix;  // of files that are written in it; empty: no suffix says so
  void (*render)(const Report& report, const RenderOptions& options, std::ostream& out);
};

// All of them; the first is the default.
std::span<const Format> all_formats();
// Null if there is none of that name or suffix.
const Format* find_format(std::string_view name_or_suffix);

}  // namespace ddp_doctor
