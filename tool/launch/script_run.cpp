// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/script_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/record/worker.h"
#include "lib/record/writer.h"
#include "tool/launch/launch.h"
#include "tool/launch/run_folder.h"
#include "tool/system/paths.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> worker_command(const ScriptOptions& options, const fs::path& folder) {
  std::vector<std::string> command = {script_probe().string(),
                                      "--record",
                                      folder.string(),
                                      "--strategy",
                                      options.strategy,
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
                                      "--backend",
                                      options.backend,
                                      "--port",
                                      std::to_string(options.port)};
  if (options.rehearsed) command.emplace_back("--rehearsed");
  for (const auto& input : options.inputs) command.insert(command.end(), {"--input", input});
  command.insert(command.end(), {"--", fs::absolute(options.program).string()});
  return command;
}

// torchrun's environment, with one thread per rank unless the user said otherwise.
std::vector<Program> programs_of(const ScriptOptions& options, const fs::path& folder) {
  const auto command = worker_command(options, folder);
  Environment environment = own_environment();
  environment.try_emplace("OMP_NUM_THREADS", "1");
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(options.world_size);
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = std::to_string(options.port);
  for (const auto& [name, value] : options.environment) environment[name] = value;
  std::vector<Program> programs;
  for (int rank = 0; rank < options.world_size; ++rank) {
    environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
    programs.push_back({command, environment, rank, ""});
  }
  return programs;
}

}  // namespace

void run_script(RunInfo& run, const ScriptOptions& options, const fs::path& folder,
                PreparedRanks& prepared, const std::function<void(std::int64_t step)>& on_step) {
  run.is_script = true;
  run.program = options.program.string();
  run.strategy = options.strategy;
  run.world_size = options.world_size;
  run.steps_wanted = options.steps;
  run.settings = {{"lr", fmt::format("{}", options.lr)},
                  {"optimizer", options.optimizer},
                  {"seed", std::to_string(options.seed)},
                  {"accumulate", std::to_string(options.accumulate)},
                  {"every", std::to_string(options.every)}};
  save_run_info(folder, run);
  Launch start;
  start.programs = programs_of(options, folder);
  start.prepared = &prepared;
  start.folder = folder;
  // Ranks time out by themselves first, and say in what; this is for those that cannot.
  start.timeouts.still = start.timeouts.busy = std::chrono::seconds(options.timeout_s + 10);
  start.world_size = options.world_size;
  start.on_progress = on_step;
  Launched launched = launch(start);
  run.exits = std::move(launched.exits);
  run.notes = std::move(launched.notes);
  run.ending = launched.ending;
  run.ended_ns = launched.ended_ns;
  save_run_info(folder, run);
}

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
  const bool none_trained = recorded_ranks(folder).empty();
  if (!refused.empty() && (none_trained || refused.size() == run.exits.size()))
    return refused.front()->last_words;
  if (refused.empty() && count(RankExit::Kind::kSignaled) == 0 && !could_not.empty())
    return could_not.front()->last_words;
  if (!none_trained) return {};
  if (run.exits.empty()) return "it was stopped before any rank recorded anything; run it again";
  const RankExit& first = run.exits.front();
  return fmt::format(
      "rank {} ended before it recorded anything ({} {}){}{}; run {} --version to see whether the "
      "worker starts",
      first.rank, name_of(first.kind), first.code, first.last_words.empty() ? "" : ": ",
      first.last_words, script_probe().string());
}

}  // namespace ddp_doctor
