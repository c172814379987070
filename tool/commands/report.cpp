#include "tool/command.h"
#include "tool/examination.h"
#include "tool/gate.h"
#include "tool/merged_runs.h"
#include "tool/output.h"

namespace ddp_doctor {
namespace {

Report read(const std::vector<std::filesystem::path>& folders) {
  if (folders.size() == 1) return read_examination(folders.front());
  const MergedRuns merged(folders);
  return read_examination(merged.path());
}

}  // namespace

Action setup_report(CLI::App& app) {
  struct Options {
    std::vector<std::filesystem::path> folders;
    GateOptions gate;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  app.add_option("folder", options->folders,
                 "What --out of run, check or compare wrote; several: on the machines of one job")
      ->required()
      ->type_name("RUN-FOLDER");
  app.add_flag("--brief", options->output.brief, "As check does: what fails, and the verdict");
  add_gate_flags(app, options->gate);
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options](const Call& call) {
    check_gate(options->gate);
    prepare_reports(options->output);
    Report report = read(options->folders);
    apply_gate(report, options->gate, rendering_of(options->output, call.streams),
               call.streams.err);
    return deliver(std::move(report), options->output, call.streams);
  };
}

}  // namespace ddp_doctor
