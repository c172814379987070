#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "lib/error.h"
#include "lib/record/worker.h"
#include "tool/command.h"
#include "tool/examination.h"
#include "tool/job_rank.h"
#include "tool/output.h"
#include "tool/patient_flags.h"
#include "tool/program_file.h"

namespace ddp_doctor {
namespace {

struct RunOptions {
  std::filesystem::path program;
  std::vector<std::string> strategies = {"ddp", "ddp-find-unused", "ddp-static-graph"};
  PatientFlags patient;
  OutputOptions output;
  bool fix = false;
  int repeats = 5;
  std::optional<std::filesystem::path> out;

  ExaminationOptions examination() const { return {out, fix ? repeats : 0}; }
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

Report run_script(const CLI::App& app, const RunOptions& options, const Call& call) {
  if (call.words && !call.words->empty()) {
    throw Error(
        fmt::format("{}: a TorchScript program takes no arguments; leave away what stands after --",
                    options.program.string()));
  }
  const Examinee patient = script_patient(app, options.patient, options.program);
  const auto strategies = expand(options.strategies);
  if (options.fix) {
    return examine_and_fix(under(patient, strategies.front()), options.examination(), call.streams);
  }
  std::vector<Examinee> examinees;
  for (const auto& strategy : strategies) examinees.push_back(under(patient, strategy));
  return examine(examinees, Purpose::kRun, options.examination(), call.streams);
}

int run_program(const CLI::App& app, const RunOptions& options, const Call& call) {
  auto program = program_patient(app, options.patient, options.program,
                                 call.words.value_or(std::vector<std::string>{}));
  program.pass_on = !options.output.quiet;
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
  if (self && !starts_ranks) {
    if (options.fix) {
      throw Error(
          "--fix runs the program several times, which one rank cannot do; give it to a ddp-doctor "
          "that starts them all: ddp-doctor run --fix -- torchrun ...");
    }
    return examine_own_rank(program, *self, options.out, call.streams, deliver_here);
  }
  if (options.fix)
    return deliver_here(examine_and_fix(program, options.examination(), call.streams));
  return deliver_here(examine({program}, Purpose::kRun, options.examination(), call.streams));
}

}  // namespace

Action setup_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  app.add_option(
         "program", options->program,
         "script.pt or train.py, its own arguments after --. Without a PROGRAM, what stands after "
         "-- is a command that starts the ranks itself, or a C++ program with an Examination:\n"
         "ddp-doctor run -- torchrun --nproc-per-node 2 train.py\n"
         "ddp-doctor run --nproc-per-node 2 -- ./trainer")
      ->type_name("PROGRAM");
  app.add_flag(
      "--fix", options->fix,
      "Then run it under each strategy that a finding prescribes, and show what that cures "
      "and costs. This does change how the program synchronizes");
  app.add_option("--repeats", options->repeats,
                 "With --fix: runs of each, in turn, by which costs are compared")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  add_patient_flags(app, options->patient);
  app.add_option(
         "--strategies", options->strategies,
         "Ways to synchronize, comma-separated: the first is examined, the others are run beside "
         "it.\n"
         "ddp, ddp-find-unused, ddp-static-graph, bypass, allreduce-each, allreduce-flat, or all\n"
         "[ddp,ddp-find-unused,ddp-static-graph]")
      ->check(known_strategy)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(kOnlyScripts);
  app.add_option("--out", options->out, "Keep the records in this folder")->type_name("DIR");
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
