#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>

#include "lib/error.h"
#include "lib/record/worker.h"
#include "tool/command.h"
#include "tool/examination.h"
#include "tool/job_rank.h"
#include "tool/output.h"
#include "tool/program_file.h"
#include "tool/program_run.h"

namespace ddp_doctor {
namespace {

constexpr char kOnlyScripts[] = "TorchScript programs only";
constexpr char kOnlyPrograms[] = "Programs in Python and commands only";

// Flags whose default, or meaning, depends on the kind of the program are optional here.
struct RunOptions {
  std::filesystem::path program;
  ScriptOptions script;
  ProgramOptions python;
  OutputOptions output;
  int world_size = 2;
  int port = 0;
  std::optional<std::int64_t> every;
  std::optional<std::int64_t> timeout_s;
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

void add_common_flags(CLI::App& app, RunOptions& options) {
  app.add_option(
         "program", options.program,
         "script.pt or train.py, its own arguments after --. Without a PROGRAM, what stands after "
         "-- is a command that starts the ranks itself:\n"
         "ddp-doctor run -- torchrun --nproc-per-node 2 train.py")
      ->type_name("PROGRAM");
  app.add_option("--nproc-per-node,--nproc_per_node", options.world_size,
                 "Ranks to start; a command starts its own")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--every", options.every,
                 "Record every Nth step only (and the first and the last) [1; 10 for Python and "
                 "commands]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  app.add_option(
         "--timeout", options.timeout_s,
         "Seconds without any progress after which a run counts as hung [60; 300 for Python "
         "and commands]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{86'400}));
  app.add_option(
         "--master-port,--master_port", options.port,
         "TCP port on 127.0.0.1 where ranks meet; 0: they meet in a file (TorchScript), or at "
         "any free port")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--out", options.out, "Keep the records in this folder")->type_name("DIR");
}

void add_program_flags(CLI::App& app, ProgramOptions& program) {
  app.add_option(
         "--python", program.python,
         "The interpreter [the first with torch of $VIRTUAL_ENV/bin/python, python3 on PATH, "
         "/usr/bin/python3]")
      ->type_name("PATH")
      ->group(kOnlyPrograms);
  app.add_option("--warmup", program.warmup,
                 "Record each of the first N steps, whatever --every says")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}))
      ->capture_default_str()
      ->group(kOnlyPrograms);
}

void add_script_flags(CLI::App& app, ScriptOptions& script) {
  app.add_option(
         "--strategies", script.strategies,
         "Ways to synchronize, comma-separated: the first is examined, the others are run beside "
         "it.\n"
         "ddp, ddp-find-unused, ddp-static-graph, bypass, allreduce-each, allreduce-flat, or all\n"
         "[ddp,ddp-find-unused,ddp-static-graph]")
      ->check(known_strategy)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(kOnlyScripts);
  app.add_option("--steps", script.steps, "Optimizer steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--lr", script.lr, "Learning rate")
      ->check(positive_number)
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--optimizer", script.optimizer)
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--seed", script.seed, "Seed of generated inputs and of the ranks' random numbers")
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--accumulate", script.accumulate,
                 "Micro-batches per step, all but the last under no_sync")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option(
         "--input", script.inputs,
         "Random input of forward where the program has no batch(): float32[8,32]; repeatable")
      ->allow_extra_args(false)
      ->type_name("DTYPE[SHAPE]")
      ->group(kOnlyScripts);
}

// Given on the command line. What stands in the environment is a default for the programs that it
// concerns, and none for the others.
bool was_given(const CLI::App& app, const std::string& flag) {
  const auto* option = app.get_option(flag);
  if (option->count() == 0) return false;
  const char* setting = std::getenv(option->get_envname().c_str());
  return setting == nullptr || option->results() != std::vector<std::string>{setting};
}

// A flag that means nothing to this kind of program was meant for something else.
void refuse_flags(const CLI::App& app, const std::string& group, const char* hint) {
  for (const auto* option : app.get_options()) {
    if (option->get_group() != group) continue;
    const std::string flag = "--" + option->get_lnames().front();
    if (was_given(app, flag)) {
      throw Error(fmt::format(
          "{} concerns {}; {}", flag,
          group == kOnlyScripts ? "TorchScript programs" : "programs in Python and commands",
          hint));
    }
  }
}

// "train.py --epochs 3", where --epochs is the program's.
void refuse_extras(const CLI::App& app, const std::filesystem::path& program) {
  const auto extras = app.remaining();
  if (extras.empty()) return;
  const std::string words = fmt::format("{}", fmt::join(extras, " "));
  throw CLI::ExtrasError(
      program.empty()
          ? words + ": not known to ddp-doctor"
          : fmt::format("{0}: not known to ddp-doctor; put the program's own arguments after --: "
                        "ddp-doctor run {1} -- {0}",
                        words, program.string()),
      CLI::ExitCodes::ExtrasError);
}

Report run_script(const CLI::App& app, RunOptions& options, const Call& call) {
  refuse_flags(app, kOnlyPrograms, "leave it away");
  if (call.words && !call.words->empty()) {
    throw Error(
        fmt::format("{}: a TorchScript program takes no arguments; leave away what stands after --",
                    options.program.string()));
  }
  auto& script = options.script;
  script.program = options.program;
  script.strategies = expand(script.strategies);
  script.world_size = options.world_size;
  script.port = options.port;
  script.every = options.every.value_or(script.every);
  script.timeout_s = options.timeout_s.value_or(script.timeout_s);
  if (!options.out.empty()) script.out = options.out;
  return examine_script(script, call.streams);
}

int run_program(const CLI::App& app, RunOptions& options, const Call& call) {
  auto& program = options.python;
  program.program = options.program;
  program.words = call.words.value_or(std::vector<std::string>{});
  refuse_flags(app, kOnlyScripts,
               program.is_command() ? "give your program's own arguments within the command"
                                    : "pass your program's own arguments after --");
  for (const char* flag : {"--nproc-per-node", "--master-port", "--python"}) {
    if (program.is_command() && was_given(app, flag)) {
      throw Error(
          fmt::format("{} concerns ranks that ddp-doctor starts; a command starts its own: give it "
                      "to the command",
                      flag));
    }
  }
  program.world_size = options.world_size;
  program.port = options.port;
  program.every = options.every.value_or(program.every);
  program.timeout_s = options.timeout_s.value_or(program.timeout_s);
  program.pass_on = !options.output.quiet;
  if (!options.out.empty()) program.out = options.out;
  const auto deliver_here = [&](Report report) {
    return deliver(std::move(report), options.output, call.streams);
  };
  const auto self = own_rank();
  const bool starts_ranks = was_given(app, "--nproc-per-node");
  if (self && starts_ranks && std::getenv("TORCHELASTIC_RUN_ID") != nullptr) {
    throw Error(fmt::format(
        "this is rank {} of {} that torchrun started; leave --nproc-per-node to torchrun",
        self->rank, self->world_size));
  }
  if (self && !starts_ranks) return examine_own_rank(program, *self, call.streams, deliver_here);
  return deliver_here(examine_program(program, call.streams));
}

}  // namespace

Action setup_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  options->script.strategies = {"ddp", "ddp-find-unused", "ddp-static-graph"};
  add_common_flags(app, *options);
  add_program_flags(app, options->python);
  add_script_flags(app, options->script);
  add_output_flags(app, options->output);
  add_environment_defaults(app);
  app.allow_extras();  // CLI11 would list them in no order, and not say what to do
  return [options, &app](const Call& call) {
    refuse_extras(app, options->program);
    const bool command = options->program.empty() && call.words && !call.words->empty();
    if (options->program.empty() && !command) throw CLI::RequiredError("program");
    if (!command && kind_of_program(options->program) == ProgramKind::kTorchScript) {
      return deliver(run_script(app, *options, call), options->output, call.streams);
    }
    return run_program(app, *options, call);
  };
}

}  // namespace ddp_doctor
