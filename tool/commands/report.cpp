// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "lib/error.h"
#include "lib/report/merge/merge.h"
#include "lib/report/merge/read_json.h"
#include "tool/cli/command.h"
#include "tool/cli/gate.h"
#include "tool/cli/output.h"
#include "tool/examine/examination.h"
#include "tool/examine/merged_runs.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

Report read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw Error(fmt::format("{}: cannot be read; check its permissions", file.string()));
  if (file.extension() == ".py")
    throw Error(fmt::format("{0}: is a program; to examine it: ddp-doctor run {0}", file.string()));
  if (file.extension() != ".json" && !text.starts_with('{'))
    throw Error(fmt::format(
        "{}: not a JSON report; give the records of the run, which --out keeps: ddp-doctor "
        "report RUN-FOLDER",
        file.string()));
  return read_report(text, file.string());
}

Report read_report(const std::vector<fs::path>& paths, const StatedPlacements& stated) {
  const auto is_file = [](const fs::path& path) {
    return fs::exists(path) && !fs::is_directory(path);
  };
  const auto file = std::find_if(paths.begin(), paths.end(), is_file);
  if (file == paths.end()) {
    if (paths.size() == 1) return read_examination(paths.front(), stated);
    const MergedRuns merged(paths);
    return read_examination(merged.path(), stated);
  }
  const auto other = std::find_if_not(paths.begin(), paths.end(), is_file);
  if (other != paths.end()) {
    throw Error(fmt::format(
        "{} is a file and {} is {}; give either run directories or JSON reports of them "
        "(`ddp-doctor report RUN-FOLDER --format json > node.json`)",
        file->string(), other->string(), fs::exists(*other) ? "a directory" : "missing"));
  }
  std::vector<NamedReport> reports;
  for (const auto& path : paths) reports.push_back({path.string(), read_file(path)});
  return merge(std::move(reports));
}

// A report does not have the bits of each parameter.
void refuse_baseline(const std::vector<fs::path>& paths, const GateOptions& gate) {
  if (gate.baseline && !fs::is_directory(paths.front()))
    throw Error("--baseline needs the records; give run directories, not reports of them");
}

}  // namespace

Action setup_report(CLI::App& app) {
  struct Options {
    std::vector<std::filesystem::path> folders;
    GateOptions gate;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  app.add_option(
         "folder", options->folders,
         "Directories written by --out of run, check or compare; several are merged, one from each "
         "machine of a job. Or JSON reports of them, which can be merged in turn (docs/scale.md)")
      ->required()
      ->type_name("RUN-FOLDER|REPORT.json");
  app.add_flag("--brief", options->output.brief,
               "Print only the findings that fail and the verdict, as check does");
  add_gate_flags(app, options->gate);
  add_inconclusive_flag(app, options->output);
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options](const Call& call) {
    check_gate(options->gate);
    refuse_baseline(options->folders, options->gate);
    // A report may overwrite one that is read.
    const bool files = fs::is_regular_file(options->folders.front());
    if (!files) prepare_reports(options->output);
    Report report = read_report(options->folders, call.placement);
    if (files) prepare_reports(options->output);
    apply_gate(report, options->gate, rendering_of(options->output, call.streams),
               call.streams.err);
    return deliver(std::move(report), options->output, call.streams);
  };
}

}  // namespace ddp_doctor
