#include "tool/command.h"
#include "tool/examination.h"
#include "tool/merged_runs.h"
#include "tool/output.h"

namespace ddp_doctor {

Action setup_report(CLI::App& app) {
  struct Options {
    std::vector<std::filesystem::path> folders;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  app.add_option("folder", options->folders,
                 "What `ddp-doctor run --out` wrote; several: on the machines of one job")
      ->required()
      ->type_name("RUN-FOLDER");
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options](const Call& call) {
    const Streams streams = call.streams;
    if (options->folders.size() == 1)
      return deliver(read_examination(options->folders.front()), options->output, streams);
    const MergedRuns merged(options->folders);
    return deliver(read_examination(merged.path()), options->output, streams);
  };
}

}  // namespace ddp_doctor
