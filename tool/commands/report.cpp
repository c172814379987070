#include "tool/command.h"
#include "tool/examination.h"
#include "tool/output.h"

namespace ddp_doctor {

Action setup_report(CLI::App& app) {
  struct Options {
    std::filesystem::path folder;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  app.add_option("folder", options->folder, "What `ddp-doctor run --out` wrote")
      ->required()
      ->type_name("RUN-FOLDER");
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options](const Call& call) {
    const Streams streams = call.streams;
    return deliver(read_examination(options->folder), options->output, streams);
  };
}

}  // namespace ddp_doctor
