// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/program_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/explain/wording/errors.h"
#include "tool/launch/free_port.h"
#include "tool/launch/isolation.h"
#include "tool/launch/launch.h"
#include "tool/launch/program_launch.h"
#include "tool/system/shell_words.h"
#include "tool/watch/run_watch.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 3;

// torchrun's environment for one machine, with one thread per rank unless the user said otherwise.
Environment as_rank(Environment environment, int rank, int world_size, int port) {
  // A launcher above us has its own store; these ranks have theirs.
  std::erase_if(environment,
                [](const auto& setting) { return setting.first.starts_with("TORCHELASTIC_"); });
  environment.try_emplace("OMP_NUM_THREADS", "1");
  environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(world_size);
  environment["GROUP_RANK"] = "0";
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = std::to_string(port);
  return environment;
}

std::vector<std::string> inside(const View* view, std::vector<std::string> words) {
  // The interpreter, or what the command is found by, stays.
  for (std::size_t i = 1; view != nullptr && i < words.size(); ++i)
    words[i] = view->inside(words[i]);
  return words;
}

Environment inside(const View* view, Environment environment) {
  if (view == nullptr) return environment;
  if (auto here = environment.find("PWD"); here != environment.end())
    here->second = view->inside(here->second);
  auto& path = environment["PYTHONPATH"];
  for (const auto& entry : split(std::exchange(path, {}), ':'))
    path += (path.empty() ? "" : ":") + view->inside(entry);
  return environment;
}

std::vector<Program> programs_of(const ProgramOptions& options,
                                 const std::vector<std::string>& command, const fs::path& folder) {
  const Environment environment =
      inside(options.view, with_probe(own_environment(), options, folder));
  if (!options.doctor_starts_ranks()) return {{command, environment, {}, ""}};
  const int port = options.port != 0 ? options.port : free_port();
  std::vector<Program> programs;
  for (int rank = 0; rank < options.world_size; ++rank) {
    programs.push_back({command, as_rank(environment, rank, options.world_size, port), rank,
                        options.world_size > 1 ? fmt::format("[rank {}] ", rank) : std::string()});
  }
  return programs;
}

// Another process took the port before the ranks did.
bool lost_the_port(const Launched& launched, const RunInfo& run) {
  return !run.failure.empty() &&
         std::any_of(launched.exits.begin(), launched.exits.end(), [](const RankExit& exit) {
           return exit.kind == RankExit::Kind::kExited && exit.code != 0 &&
                  is_port_taken(exit.last_words);
         });
}

void make_folder(const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
}

}  // namespace

void run_program(RunInfo& run, const ProgramOptions& options, const fs::path& folder,
                 Streams streams, const std::function<void(std::int64_t step)>& on_step) {
  const auto command = inside(options.view, words_to_execute(options));
  const RunInfo before = run;
  for (int attempt = 1;; ++attempt) {
    run = before;
    describe_run(run, options, command);
    make_folder(folder);
    save_run_info(folder, run);
    TorchProcesses torch;
    const int world_size = options.doctor_starts_ranks() ? options.world_size : 0;
    RunWatch watch(folder, run, options, world_size, true, streams.err);
    const Launched launched = launch({.programs = programs_of(options, command, folder),
                                      .folder = folder,
                                      .timeouts = options.timeouts,
                                      .world_size = world_size,
                                      .pass_on = options.pass_on ? &streams.err : nullptr,
                                      .on_progress = on_step,
                                      .meanwhile =
                                          [&] {
                                            watch.look();
                                            torch.look(folder);
                                          },
                                      .ends = [&] { return watch.ends(); },
                                      .view = options.view,
                                      .deadline = options.deadline,
                                      .why_deadline = options.why_deadline});
    settle(run, folder, launched, torch, options);
    if (!lost_the_port(launched, run)) break;
    if (options.port != 0) {
      run.failure =
          fmt::format("port {} is taken: {}; choose another with --master-port, or omit it",
                      options.port, run.failure);
      break;
    }
    if (attempt == kAttempts) break;
    streams.err << "ddp-doctor: another process took the ranks' port; starting them again with "
                   "another port\n";
  }
  save_run_info(folder, run);
}

}  // namespace ddp_doctor
