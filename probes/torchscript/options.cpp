// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "lib/version.h"
#include "probes/nccl/plugin.h"
#include "probes/torchscript/torch_text.h"

namespace ddp_doctor {
namespace {

int say_nccl_version() {
  try {
    const auto& plugin = nccl_plugin();
    std::cout << fmt::format("{}; {} GPUs\n", plugin.version(), plugin.gpus());
  } catch (const std::exception& error) {
    std::cout << message_without_backtrace(error) << "\n";
  }
  std::cout.flush();
  return worker_exit::kFinished;
}

}  // namespace

std::optional<WorkerOptions> parse_options(int argc, char** argv, int& exit_code) {
  WorkerOptions options;
  CLI::App app("One rank of an examination, started by `ddp-doctor run`.", "script-probe");
  app.set_version_flag("--version", std::string("script-probe ") + kVersion + ", LibTorch " +
                                        torch_version() + ", Gloo");
  app.add_option("program", options.program)->required();
  app.add_option("--record", options.record)->required();
  app.add_option("--strategy", options.strategy);
  app.add_option("--steps", options.steps);
  app.add_option("--every", options.every);
  app.add_option("--lr", options.lr);
  app.add_option("--optimizer", options.optimizer);
  app.add_option("--seed", options.seed);
  app.add_option("--accumulate", options.accumulate);
  app.add_option("--input", options.inputs)->allow_extra_args(false);
  app.add_flag("--rehearsed", options.rehearsed);
  app.add_option("--timeout", options.timeout_s);
  app.add_option("--keep-values", options.keep_values_mib);
  app.add_option("--backend", options.backend);
  app.add_option("--port", options.port);
  app.add_option("--rank", options.rank)->envname("RANK");
  app.add_option("--world-size", options.world_size)->envname("WORLD_SIZE");
  // For `ddp-doctor env`: prints the NCCL version and the number of GPUs, or why NCCL is
  // unavailable.
  if (argc == 2 && std::string_view(argv[1]) == "--nccl-version") {
    exit_code = say_nccl_version();
    return {};
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? worker_exit::kFinished : worker_exit::kCouldNotRun;
    return {};
  }
  return options;
}

}  // namespace ddp_doctor
