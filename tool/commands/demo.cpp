// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "lib/error.h"
#include "tool/cli/command.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/output.h"
#include "tool/examine/examination.h"
#include "tool/system/paths.h"

namespace ddp_doctor {
namespace {

struct Demo {
  const char* name;
  const char* story;
  std::vector<std::string> strategies;
};

const std::vector<Demo>& demos() {
  static const std::vector<Demo> kDemos = {
      {"curriculum",
       "the loss is computed on ddp.module: every rank trains its own model",
       {"bypass", "allreduce-each", "allreduce-flat", "ddp"}},
      {"orphan",
       "a registered layer is never called: the reducer never finishes",
       {"ddp", "ddp-find-unused", "ddp-static-graph"}},
      {"conditional",
       "a branch depends on the rank: ranks wait for each other's gradients",
       {"ddp", "ddp-find-unused", "allreduce-flat"}},
      {"multi_forward",
       "every layer is used in every step, but find_unused_parameters is set",
       {"ddp-find-unused", "ddp", "ddp-static-graph"}},
  };
  return kDemos;
}

int list(Streams streams) {
  for (const auto& demo : demos()) streams.out << fmt::format("{:<14} {}\n", demo.name, demo.story);
  streams.out << "\nRun one with `ddp-doctor demo NAME`.\n";
  return exit_code::kHealthy;
}

}  // namespace

std::vector<std::string> demo_names() {
  std::vector<std::string> names;
  for (const auto& demo : demos()) names.emplace_back(demo.name);
  return names;
}

Action setup_demo(CLI::App& app) {
  struct Options {
    std::string name;
    int world_size = 2;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  app.add_option("name", options->name, "Name of the demo; without one the demos are listed")
      ->type_name("NAME");
  app.add_option("--nproc-per-node,--nproc_per_node", options->world_size, "Ranks to start")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options](const Call& call) {
    const Streams streams = call.streams;
    if (options->name.empty()) return list(streams);
    const auto& all = demos();
    const auto chosen = std::find_if(all.begin(), all.end(),
                                     [&](const Demo& demo) { return options->name == demo.name; });
    if (chosen == all.end()) {
      const auto meant = did_you_mean(options->name, demo_names());
      throw Error(fmt::format("there is no demo {}{}", options->name,
                              meant.empty() ? "; `ddp-doctor demo` lists them" : meant));
    }
    ScriptOptions script;
    script.program = examples_folder() / (options->name + ".pt");
    script.world_size = options->world_size;
    std::vector<ExaminedProgram> programs;
    for (const auto& strategy : chosen->strategies) programs.push_back(under(script, strategy));
    return deliver(examine(programs, Purpose::kRun, {}, streams), options->output, streams);
  };
}

}  // namespace ddp_doctor
