#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "lib/record/worker.h"
#include "tool/command.h"
#include "tool/examination.h"
#include "tool/output.h"

namespace ddp_doctor {
namespace {

struct RunOptions {
  ScriptOptions script;
  OutputOptions output;
  std::string out;
};

// "all", or names of strategies, each once.
std::vector<std::string> expand(const std::vector<std::string>& given) {
  std::vector<std::string> strategies;
  const auto add = [&](std::string_view name) {
    if (std::find(strategies.begin(), strategies.end(), name) == strategies.end())
      strategies.emplace_back(name);
  };
  for (const auto& name : given) {
    if (name != "all") {
      add(name);
    } else {
      for (const auto strategy : kScriptStrategies) add(strategy);
    }
  }
  return strategies;
}

std::string known_strategy(const std::string& name) {
  const bool known = std::find(std::begin(kScriptStrategies), std::end(kScriptStrategies), name) !=
                     std::end(kScriptStrategies);
  if (known || name == "all") return {};
  return fmt::format("{} is not a strategy; there are {} and all", name,
                     fmt::join(kScriptStrategies, ", "));
}

std::string positive_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0' && value > 0 && std::isfinite(value)) return {};
  return fmt::format("{} is not a positive number", text);
}

void add_script_flags(CLI::App& app, RunOptions& options) {
  auto& script = options.script;
  app.add_option("program", script.program, "A TorchScript program (script.pt)")
      ->required()
      ->type_name("PROGRAM");
  app.add_option("--nproc-per-node,--nproc_per_node", script.world_size, "Ranks")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option(
         "--strategies", script.strategies,
         "Ways to synchronize, comma-separated: the first is examined, the others are run beside "
         "it.\n"
         "ddp, ddp-find-unused, ddp-static-graph, bypass, allreduce-each, allreduce-flat, or all\n"
         "[ddp,ddp-find-unused,ddp-static-graph]")
      ->check(known_strategy)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  app.add_option("--steps", script.steps, "Optimizer steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--every", script.every, "Record every Nth step only (and the first and the last)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--lr", script.lr, "Learning rate")->check(positive_number)->capture_default_str();
  app.add_option("--optimizer", script.optimizer)
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option("--seed", script.seed, "Seed of generated inputs and of the ranks' random numbers")
      ->capture_default_str();
  app.add_option("--accumulate", script.accumulate,
                 "Micro-batches per step, all but the last under no_sync")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->capture_default_str();
  app.add_option(
         "--input", script.inputs,
         "Random input of forward where the program has no batch(): float32[8,32]; repeatable")
      ->allow_extra_args(false)
      ->type_name("DTYPE[SHAPE]");
  app.add_option("--timeout", script.timeout_s,
                 "Seconds without any progress after which a run counts as hung")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{86'400}))
      ->capture_default_str();
  app.add_option("--master-port,--master_port", script.port,
                 "TCP port on 127.0.0.1 where ranks meet; 0: they meet in a file")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--out", options.out, "Keep the records in this folder")->type_name("DIR");
}

}  // namespace

Action setup_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  options->script.strategies = {"ddp", "ddp-find-unused", "ddp-static-graph"};
  add_script_flags(app, *options);
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  return [options](Streams streams) {
    options->script.strategies = expand(options->script.strategies);
    if (!options->out.empty()) options->script.out = options->out;
    return deliver(examine_script(options->script, streams), options->output, streams);
  };
}

}  // namespace ddp_doctor
