// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examine/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lib/parity/figures.h"
#include "lib/report/compare/against_one_process.h"
#include "tool/examine/runs.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// A short program ends before all is compared, and is started again for the rest.
constexpr int kStarts = 12;

// Steps of a C++ program in which batches of other shapes are looked for.
constexpr std::int64_t kFurtherSteps = 200;

std::map<std::string, std::string> role(const char* name, const fs::path& folder) {
  return {{"DDP_DOCTOR_PARITY", name},
          {"DDP_DOCTOR_PARITY_FOLDER", fs::absolute(folder).string()},
          {"TORCHDYNAMO_DISABLE", "1"},
          {"NVIDIA_TF32_OVERRIDE", "0"}};
}

ExaminedProgram as_ranks(ExaminedProgram program, const ParityOptions& parity,
                         const fs::path& folder) {
  auto environment = role("ranks", folder);
  environment["DDP_DOCTOR_PARITY_STEPS"] = std::to_string(parity.steps);
  environment["DDP_DOCTOR_PARITY_BUDGET"] = std::to_string(parity.budget_mib << 20);
  std::visit([&](auto& options) { options.environment = environment; }, program);
  if (auto* script = std::get_if<ScriptOptions>(&program)) {
    script->steps = std::max(script->steps, parity.steps);
    return program;
  }
  auto& options = std::get<ProgramOptions>(program);
  options.steps = 0;
  // A program in Python ends by itself when all is kept.
  if (options.is_command() && options.stop_after == 0)
    options.stop_after = parity.steps + kFurtherSteps;
  return program;
}

ExaminedProgram as_one_process(ExaminedProgram program, const ParityOptions& parity,
                               const fs::path& folder) {
  constexpr std::int64_t kUntilAllIsPlayed = 1'000'000;
  std::visit(
      [&](auto& options) {
        options.environment = role("reference", folder);
        options.world_size = 1;
      },
      program);
  if (auto* script = std::get_if<ScriptOptions>(&program)) {
    script->steps = kUntilAllIsPlayed;
    script->every = kUntilAllIsPlayed;
    return program;
  }
  auto& options = std::get<ProgramOptions>(program);
  options.steps = 0;
  options.pass_on = false;
  options.words.insert(options.words.end(), parity.reference_words.begin(),
                       parity.reference_words.end());
  return program;
}

std::size_t files_in(const fs::path& folder) {
  std::error_code missing;
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder, missing), fs::directory_iterator()));
}

// Why one process could not play all of it; empty if it did.
std::string run_reference(Runs& runs, const ExaminedProgram& program, const fs::path& folder) {
  const fs::path figures = folder / "figures.json";
  std::size_t played = 0;
  for (int start = 1; start <= kStarts; ++start) {
    const fs::path own = folder / fmt::format("reference-{:02}", start);
    fs::create_directory(own);
    const auto failure = runs.run_beside(program, own);
    if (fs::exists(figures)) return {};
    const std::size_t now = files_in(folder / "played");
    const bool further = now > played;
    played = now;
    if (further) continue;
    std::string reason = failure.value_or("");
    for (const auto& exit : load_run_info(own).exits) {
      if (reason.empty() && fell(exit)) reason = exit.last_words;
    }
    while (!reason.empty() && (reason.back() == '\n' || reason.back() == ' ')) reason.pop_back();
    if (const auto line = reason.rfind('\n'); line != std::string::npos) reason.erase(0, line + 1);
    // Newer torch puts the rank before each line; here there is one.
    constexpr std::string_view kRank = "[rank0]: ";
    if (reason.starts_with(kRank)) reason.erase(0, kRank.size());
    return reason.empty() ? "the program ended as one process before a step of the ranks could be "
                            "repeated"
                          : fmt::format(
                                "as one process the program fails: {}; give it what it needs "
                                "with --reference-args",
                                reason);
  }
  return fmt::format(
      "the program makes too few steps as one process: after {} starts not all was "
      "compared; choose fewer --steps",
      kStarts);
}

}  // namespace

namespace {

fs::path parity_folder(const fs::path& examination, int run) {
  return examination / (run == 0 ? "parity" : fmt::format("parity-{:02}", run));
}

}  // namespace

fs::path parity_figures(const fs::path& examination, int run) {
  return parity_folder(examination, run) / "figures.json";
}

void add_beside_one_process(Runs& runs, const ExaminedProgram& program,
                            const ParityOptions& parity) {
  const int index = runs.next();
  const fs::path folder = parity_folder(runs.folder(), index);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  const fs::path figures = parity_figures(runs.folder(), index);
  try {
    runs.add(as_ranks(program, parity, folder));
    const RunReport seen = read_examination(runs.folder()).runs.at(static_cast<std::size_t>(index));
    if (!seen.info.failure.empty()) return;
    if (ranks_disagree(seen)) {
      write_impossible(figures, "the ranks' own run has errors; fix these first");
      return;
    }
    const auto reason = run_reference(runs, as_one_process(program, parity, folder), folder);
    if (!reason.empty()) write_impossible(figures, reason);
  } catch (const CutShort&) {
    if (!fs::exists(figures))
      write_impossible(figures, "interrupted before all gradients were compared");
    throw;
  }
}

Report examine_parity(const ExaminedProgram& program, const ParityOptions& parity,
                      const ExaminationOptions& options, Streams streams) {
  Runs runs(Purpose::kRun, options, streams);
  runs.isolate({program});
  bool interrupted = false;
  try {
    add_beside_one_process(runs, program, parity);
  } catch (const CutShort&) {
    interrupted = true;
  }
  runs.finish();
  Report report = read_examination(runs.folder());
  report.interrupted = interrupted;
  report.records = runs.records();
  return report;
}

}  // namespace ddp_doctor
