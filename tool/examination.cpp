#include "tool/examination.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "lib/error.h"
#include "lib/record/run_info.h"
#include "lib/record/worker.h"
#include "lib/record/writer.h"
#include "tool/as_is.h"
#include "tool/command.h"
#include "tool/interrupt.h"
#include "tool/launch.h"
#include "tool/paths.h"
#include "tool/run_folder.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

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

// torchrun's environment, with one thread per rank unless the user said otherwise.
std::vector<Program> programs_of(const ScriptOptions& options, const std::string& strategy,
                                 const fs::path& folder) {
  const auto command = worker_command(options, strategy, folder);
  Environment environment = own_environment();
  environment.try_emplace("OMP_NUM_THREADS", "1");
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(options.world_size);
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = std::to_string(options.port);
  std::vector<Program> programs;
  for (int rank = 0; rank < options.world_size; ++rank) {
    environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
    programs.push_back({command, environment, rank, ""});
  }
  return programs;
}

bool has_record(const fs::path& folder, const RunInfo& run) {
  for (int rank = 0; rank < run.world_size; ++rank) {
    if (fs::exists(record_file(folder, rank))) return true;
  }
  return false;
}

// Why the run is none: a program that no rank could start, a record that could not be written, a
// worker that does not run. A rank that was killed, or one whose first pass failed while others'
// did not, is a patient.
std::optional<std::string> why_not_run(const fs::path& folder, const RunInfo& run) {
  const auto ended_with = [&](int code) {
    std::vector<const RankExit*> ranks;
    for (const auto& exit : run.exits) {
      if (exit.kind == RankExit::Kind::kExited && exit.code == code) ranks.push_back(&exit);
    }
    return ranks;
  };
  const auto count = [&](RankExit::Kind kind) {
    return std::count_if(run.exits.begin(), run.exits.end(),
                         [&](const RankExit& exit) { return exit.kind == kind; });
  };
  const auto refused = ended_with(worker_exit::kRefusedProgram);
  const auto could_not = ended_with(worker_exit::kCouldNotRun);
  const bool none_trained = !has_record(folder, run);
  if (!refused.empty() && (none_trained || refused.size() == run.exits.size()))
    return refused.front()->last_words;
  if (refused.empty() && count(RankExit::Kind::kSignaled) == 0 && !could_not.empty())
    return could_not.front()->last_words;
  if (!none_trained) return {};
  if (run.exits.empty()) return "it was ended before any rank could record anything; run it again";
  const RankExit& first = run.exits.front();
  return fmt::format(
      "rank {} ended before it could record anything ({} {}){}{}; run {} --version by hand to see "
      "whether the worker starts",
      first.rank, name_of(first.kind), first.code, first.last_words.empty() ? "" : ": ",
      first.last_words, script_probe().string());
}

RunInfo run_strategy(const ScriptOptions& options, int index, const fs::path& folder,
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
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  save_run_info(folder, run);

  const bool terminal = isatty(STDERR_FILENO) == 1;
  const auto clear = [&] {
    if (terminal) streams.err << "\r\x1b[K" << std::flush;
  };
  Launch start;
  start.programs = programs_of(options, run.strategy, folder);
  start.folder = folder;
  // Ranks time out by themselves first, and say in what; this is for those that cannot.
  start.stall_timeout = std::chrono::seconds(options.timeout_s + 10);
  if (terminal) {
    start.on_progress = [&](std::int64_t step) {
      streams.err << fmt::format("\r\x1b[K{} ({} of {}): step {} of {}", run.strategy, index + 1,
                                 options.strategies.size(), step, options.steps)
                  << std::flush;
    };
  }
  try {
    run.exits = launch(start).exits;
  } catch (...) {
    clear();
    throw;
  }
  clear();
  save_run_info(folder, run);
  return run;
}

}  // namespace

Report examine_script(const ScriptOptions& options, Streams streams) {
  InterruptGuard interrupt;
  RunFolder folder(options.out);
  for (int index = 0; index < static_cast<int>(options.strategies.size()); ++index) {
    const fs::path run_folder =
        folder.path() /
        fmt::format("{:02}-{}", index, options.strategies[static_cast<std::size_t>(index)]);
    const RunInfo run = run_strategy(options, index, run_folder, streams);
    // Beside the examined one, a strategy that cannot run is a column that says so.
    if (const auto reason = why_not_run(run_folder, run); reason && index == 0)
      throw Error(*reason);
    if (interrupt.requested()) throw Interrupted("interrupted; every rank was ended");
  }
  return read_examination(folder.path());
}

Report read_examination(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error(fmt::format("{}: no such folder; give one that `ddp-doctor run --out` wrote",
                            folder.string()));
  }
  std::vector<RunReport> runs;
  for (const auto& run_folder : run_folders(folder)) {
    const RunInfo run = load_run_info(run_folder);
    if (run.strategy == kAsIs) {
      runs.push_back(report_as_is(run_folder, run, static_cast<int>(runs.size())));
      continue;
    }
    const auto reason = why_not_run(run_folder, run);
    if (reason && !runs.empty()) {
      runs.push_back(report_of_no_run(run, *reason));
    } else {
      runs.push_back(report_run(Timeline::load(run_folder, run), static_cast<int>(runs.size())));
    }
  }
  return make_report(std::move(runs));
}

}  // namespace ddp_doctor
