#include "tool/examination.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "lib/error.h"
#include "lib/record/run_info.h"
#include "tool/command.h"
#include "tool/interrupt.h"
#include "tool/launch.h"
#include "tool/paths.h"
#include "tool/program_file.h"
#include "tool/run_folder.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// Exit codes of the rank worker (probes/script/options.h) that are not the patient's: its last
// words tell why.
constexpr int kWorkerCouldNotRun = 2;
constexpr int kWorkerRefusedProgram = 3;
constexpr char kWorkerErrorMark[] = "ddp-doctor: error: ";

std::vector<std::string> worker_command(const ScriptOptions& options, const std::string& strategy,
                                        const fs::path& folder) {
  std::vector<std::string> command = {script_probe().string(),
                                      "--record",
                                      folder.string(),
                                      "--strategy",
                                      strategy,
                                      "--steps",
                                      std::to_string(options.steps),
                                      "--every",
                                      std::to_string(options.every),
                                      "--lr",
                                      fmt::format("{}", options.lr),
                                      "--optimizer",
                                      options.optimizer,
                                      "--seed",
                                      std::to_string(options.seed),
                                      "--accumulate",
                                      std::to_string(options.accumulate),
                                      "--timeout",
                                      std::to_string(options.timeout_s),
                                      "--port",
                                      std::to_string(options.port)};
  for (const auto& input : options.inputs) command.insert(command.end(), {"--input", input});
  command.insert(command.end(), {"--", fs::absolute(options.program).string()});
  return command;
}

// The worker's own message, without what libraries wrote around it.
std::string message_of(const RankExit& exit) {
  const auto mark = exit.last_words.rfind(kWorkerErrorMark);
  if (mark == std::string::npos) return exit.last_words;
  return exit.last_words.substr(mark + sizeof kWorkerErrorMark - 1);
}

// A program that no rank could start, or a record that could not be written, is not a finding. A
// rank that was killed, or one whose first pass failed while others' did not, is.
void require_started(const RunInfo& run) {
  const auto ended_with = [&](int code) {
    std::vector<const RankExit*> ranks;
    for (const auto& exit : run.exits) {
      if (exit.kind == RankExit::Kind::kExited && exit.code == code) ranks.push_back(&exit);
    }
    return ranks;
  };
  const auto refused = ended_with(kWorkerRefusedProgram);
  if (refused.size() == run.exits.size()) throw Error(refused.front()->last_words);
  const bool killed = std::any_of(run.exits.begin(), run.exits.end(), [](const RankExit& exit) {
    return exit.kind == RankExit::Kind::kSignaled;
  });
  const auto could_not = ended_with(kWorkerCouldNotRun);
  if (refused.empty() && !killed && !could_not.empty()) throw Error(could_not.front()->last_words);
}

RunInfo run_strategy(const ScriptOptions& options, int index, const fs::path& out,
                     Streams streams) {
  RunInfo run;
  run.index = index;
  run.program = options.program.string();
  run.strategy = options.strategies[static_cast<std::size_t>(index)];
  run.world_size = options.world_size;
  run.steps_wanted = options.steps;
  run.settings = {{"lr", fmt::format("{}", options.lr)},
                  {"optimizer", options.optimizer},
                  {"seed", std::to_string(options.seed)},
                  {"accumulate", std::to_string(options.accumulate)},
                  {"every", std::to_string(options.every)}};
  const fs::path folder = out / fmt::format("{:02}-{}", index, run.strategy);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  save_run_info(folder, run);

  const bool terminal = isatty(STDERR_FILENO) == 1;
  const auto clear = [&] {
    if (terminal) streams.err << "\r\x1b[K" << std::flush;
  };
  Launch launch{
      worker_command(options, run.strategy, folder),
      options.world_size,
      options.port,
      folder,
      // Ranks time out by themselves first, and say in what; this is for those that cannot.
      std::chrono::seconds(options.timeout_s + 10),
      {}};
  if (terminal) {
    launch.on_progress = [&](std::int64_t step) {
      streams.err << fmt::format("\r\x1b[K{} ({} of {}): step {} of {}", run.strategy, index + 1,
                                 options.strategies.size(), step, options.steps)
                  << std::flush;
    };
  }
  try {
    run.exits = launch_ranks(launch);
    for (auto& exit : run.exits) exit.last_words = message_of(exit);
  } catch (...) {
    clear();
    throw;
  }
  clear();
  save_run_info(folder, run);
  return run;
}

}  // namespace

const std::vector<std::string>& script_strategies() {
  static const std::vector<std::string> kStrategies = {
      "ddp", "ddp-find-unused", "ddp-static-graph", "bypass", "allreduce-each", "allreduce-flat"};
  return kStrategies;
}

Report examine_script(const ScriptOptions& options, Streams streams) {
  require_torchscript(options.program);
  InterruptGuard interrupt;
  RunFolder folder(options.out);
  for (int index = 0; index < static_cast<int>(options.strategies.size()); ++index) {
    require_started(run_strategy(options, index, folder.path(), streams));
    if (interrupt.requested()) throw Interrupted("interrupted; every rank was ended");
  }
  return read_examination(folder.path());
}

Report read_examination(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw Error(fmt::format("{}: no such folder; give one that `ddp-doctor run --out` wrote",
                            folder.string()));
  std::vector<RunReport> runs;
  for (const auto& run : run_folders(folder)) {
    runs.push_back(
        report_run(Timeline::load(run, load_run_info(run)), static_cast<int>(runs.size())));
  }
  return make_report(std::move(runs));
}

}  // namespace ddp_doctor
