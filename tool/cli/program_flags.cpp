// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/program_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lib/error.h"
#include "tool/launch/examined_program.h"
#include "tool/system/interpreter.h"

namespace ddp_doctor {
namespace {

std::string positive_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0' && value > 0 && std::isfinite(value)) return {};
  return fmt::format("{} is not a positive number", text);
}

void add_common_flags(CLI::App& app, ProgramFlags& options) {
  app.add_option(
         "--nproc-per-node,--nproc_per_node", options.world_size,
         "Ranks to start on this machine. A command starts its own ranks unless this is given, or "
         "unless it is a C++ program with a ddp_doctor::Examination")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--every", options.every,
                 std::string("Examine every Nth step, the first and the last ") +
                     (options.every ? "[1]" : "\n[1; for Python and commands 10]"))
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  app.add_option("--steps", options.steps,
                 "Examine this many optimizer steps; a program in Python then continues unexamined "
                 "[8; for Python all]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_option(
         "--timeout", options.timeout_s,
         "Seconds without progress after which a run counts as hung [60; 300 for Python and "
         "commands, 1800 while some process uses the CPU]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{86'400}));
  app.add_option(
         "--master-port,--master_port", options.port,
         "Port of the ranks' TCPStore on 127.0.0.1; 0: any free port (TorchScript programs: a "
         "FileStore)")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
}

void add_python_flags(CLI::App& app, ProgramFlags& flags) {
  ProgramOptions& program = flags.program;
  app.add_option("--python", program.python,
                 "The Python that runs the program; a command starts its own [the first that has "
                 "torch: $VIRTUAL_ENV/bin/python, "
                 "the environment that ddp-doctor is installed in, python3 on PATH, "
                 "/usr/bin/python3]")
      ->type_name("PATH")
      ->group(kOnlyPrograms);
  app.add_option("--stall-after", flags.stall_after_s,
                 "Stop the run after ranks have waited this many seconds inside a collective while "
                 "the others were idle; 0: only --timeout stops it [20 times the longest pause of "
                 "the program, at least 60; 5 for a proven deadlock]")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{86'400}))
      ->group(kOnlyPrograms);
  app.add_option("--warmup", program.warmup,
                 "Examine each of the first N steps, whatever --every is")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}))
      ->capture_default_str()
      ->group(kOnlyPrograms);
  app.add_option("--stop-after", program.stop_after,
                 "End the program when every rank has done this many optimizer steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
      ->group(kOnlyPrograms);
  app.add_flag("--fail-fast", program.fail_fast,
               "End the program at the first error that is certain")
      ->group(kOnlyPrograms);
}

void add_script_flags(CLI::App& app, ScriptOptions& script) {
  app.add_option("--lr", script.lr, "Learning rate")
      ->check(positive_number)
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--optimizer", script.optimizer, "Optimizer")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--backend", script.backend,
                 "Backend of the process group; nccl needs a GPU for each rank, and a ddp-doctor "
                 "built with a LibTorch that has NCCL")
      ->check(CLI::IsMember({"gloo", "nccl"}))
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--seed", script.seed,
                 "Seed of the generated inputs and of the ranks' random number generators")
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option("--accumulate", script.accumulate,
                 "Micro-batches per step, all but the last under no_sync")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->capture_default_str()
      ->group(kOnlyScripts);
  app.add_option(
         "--input", script.inputs,
         "Random input of forward, if the program has no batch(): float32[8,32]; repeatable")
      ->allow_extra_args(false)
      ->type_name("DTYPE[SHAPE]")
      ->group(kOnlyScripts);
}

// A flag that has no meaning for this kind of program was meant for something else.
void refuse_flags(const CLI::App& app, const std::string& group, const std::string& hint) {
  for (const auto* option : app.get_options()) {
    if (option->get_group() != group) continue;
    const std::string flag = "--" + option->get_lnames().front();
    if (was_given(app, flag)) {
      throw Error(fmt::format(
          "{} is only for {}; {}", flag,
          group == kOnlyScripts ? "TorchScript programs" : "programs in Python and commands",
          hint));
    }
  }
}

}  // namespace

void add_program_flags(CLI::App& app, ProgramFlags& flags) {
  add_common_flags(app, flags);
  add_python_flags(app, flags);
  add_script_flags(app, flags.script);
}

ExaminationOptions examination_options(const std::optional<std::filesystem::path>& out, int repeats,
                                       bool quiet, const TrialFlags& flags) {
  ExaminationOptions options{out, repeats};
  options.in_place = flags.in_place;
  options.quiet = quiet;
  if (!flags.fix_budget.empty()) options.budget = FixBudget::from(flags.fix_budget);
  return options;
}

void add_in_place_flag(CLI::App& app, TrialFlags& flags) {
  app.add_flag(
      "--in-place", flags.in_place,
      "Run the program each time in the working directory itself. By default only the first run "
      "is there; each later one gets a copy-on-write view of the directory as it was before the "
      "first, which is discarded");
}

void add_fix_budget_flag(CLI::App& app, TrialFlags& flags) {
  app.add_option(
         "--fix-budget", flags.fix_budget,
         "With --fix: how long all runs after the first may take together, in seconds (600) "
         "or as a multiple of the first (3x) [5x, at least 300 s]")
      ->type_name("TIME");
}

bool was_given(const CLI::App& app, const std::string& flag) {
  const auto* option = app.get_option(flag);
  if (option->count() == 0) return false;
  const char* setting = std::getenv(option->get_envname().c_str());
  return setting == nullptr || option->results() != std::vector<std::string>{setting};
}

bool was_any_given(const CLI::App& app, const std::string& group) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) {
    return option->get_group() == group && was_given(app, "--" + option->get_lnames().front());
  });
}

ScriptOptions script_options(const CLI::App& app, const ProgramFlags& flags,
                             const std::filesystem::path& program,
                             const std::vector<std::string>& words) {
  if (!words.empty())
    throw Error(fmt::format("{}: a TorchScript program takes no arguments; remove those after --",
                            program.string()));
  refuse_flags(app, kOnlyPrograms, "remove it");
  ScriptOptions script = flags.script;
  script.program = program;
  script.world_size = flags.world_size;
  script.port = flags.port;
  script.every = flags.every.value_or(script.every);
  script.steps = flags.steps.value_or(script.steps);
  script.timeout_s = flags.timeout_s.value_or(script.timeout_s);
  return script;
}

namespace {

Timeouts timeouts_of(const ProgramFlags& flags) {
  Timeouts timeouts;
  if (flags.timeout_s) timeouts.still = timeouts.busy = std::chrono::seconds(*flags.timeout_s);
  if (flags.stall_after_s) {
    timeouts.idle = std::chrono::seconds(*flags.stall_after_s);
    timeouts.deadlocked = std::min(timeouts.deadlocked, *timeouts.idle);
  }
  return timeouts;
}

}  // namespace

ProgramOptions program_options(const CLI::App& app, const ProgramFlags& flags,
                               const std::filesystem::path& program,
                               const std::vector<std::string>& words) {
  ProgramOptions options = flags.program;
  options.program = program;
  options.words = words;
  refuse_flags(app, kOnlyScripts,
               options.is_command() ? "put the program's own arguments inside the command"
                                    : "put the program's own arguments after --");
  // A C++ program with an Examination is started once for each rank, and so is any command that
  // --nproc-per-node is given for.
  options.each_rank =
      options.is_command() && (was_given(app, "--nproc-per-node") ||
                               examines_itself(find_executable(options.words.front())));
  // parity compares so many steps of any program.
  if (was_given(app, "--steps") && app.get_name() != "parity" && options.is_command() &&
      examines_itself(find_executable(options.words.front())))
    throw Error(
        "--steps is only for programs in Python and TorchScript programs; --stop-after ends a "
        "program in C++");
  std::vector<const char*> foreign;
  if (options.is_command()) foreign.push_back("--python");
  if (!options.doctor_starts_ranks()) foreign.push_back("--master-port");
  for (const char* flag : foreign) {
    if (was_given(app, flag)) {
      throw Error(fmt::format(
          "{} is only for ranks that ddp-doctor starts, but a command starts its own; give it "
          "to the command",
          flag));
    }
  }
  options.world_size = flags.world_size;
  options.port = flags.port;
  options.every = flags.every.value_or(options.every);
  options.steps = flags.steps.value_or(options.steps);
  options.timeouts = timeouts_of(flags);
  return options;
}

}  // namespace ddp_doctor
