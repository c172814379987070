// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examine/examination.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "lib/error.h"
#include "lib/parity/figures.h"
#include "lib/record/run_info.h"
#include "lib/record/worker.h"
#include "lib/report/compare/against_one_process.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/compare/proof.h"
#include "tool/examine/parity.h"
#include "tool/examine/runs.h"
#include "tool/launch/program_launch.h"
#include "tool/launch/script_run.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> strategies_for(const ExaminedProgram& program) {
  if (std::holds_alternative<ScriptOptions>(program))
    return {std::begin(kScriptStrategies), std::end(kScriptStrategies)};
  return {std::begin(kProgramStrategies), std::end(kProgramStrategies)};
}

// Its output was shown the first time.
ExaminedProgram quiet(ExaminedProgram program) {
  if (auto* options = std::get_if<ProgramOptions>(&program)) options->pass_on = false;
  return program;
}

// What the runs that `work` makes have shown, up to Ctrl-C.
Report report_of(Runs& runs, const std::function<void()>& work) {
  bool interrupted = false;
  try {
    work();
  } catch (const CutShort&) {
    interrupted = true;
  }
  runs.finish();
  Report report = read_examination(runs.folder());
  report.interrupted = interrupted;
  report.records = runs.records();
  return report;
}

// In an examination's folder: the run that rounds differently.
fs::path rounding_folder(const fs::path& examination) { return examination / "rounding"; }

// Kernels for the oldest processors. What they compute differs by rounding, as it does on another
// machine.
ProgramOptions rounding_differently(ProgramOptions program) {
  program.pass_on = false;
  program.environment.insert({{"ATEN_CPU_CAPABILITY", "default"},
                              {"ONEDNN_MAX_CPU_ISA", "SSE41"},
                              {"MKL_CBWR", "COMPATIBLE"},
                              {"OPENBLAS_CORETYPE", "Nehalem"}});
  return program;
}

// Runs whose step times can be compared.
std::vector<std::pair<int, ExaminedProgram>> worth_timing(
    const Report& report, const std::vector<ExaminedProgram>& programs) {
  std::vector<std::pair<int, ExaminedProgram>> worth;
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const auto& run = report.runs[i];
    if (run.completed && run.step_time && !run.info.tried && !run.parity)
      worth.emplace_back(static_cast<int>(i), programs[i]);
  }
  if (worth.size() < 2) worth.clear();
  return worth;
}

}  // namespace

std::chrono::steady_clock::duration FixBudget::of(
    std::chrono::steady_clock::duration first_run) const {
  using Seconds = std::chrono::duration<double>;
  const double wanted = std::max(times * Seconds(first_run).count(), seconds);
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(wanted));
}

FixBudget FixBudget::from(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (end == text.c_str() || !(number > 0) || !(number < 1e9) ||
      (!unit.empty() && unit != "x" && unit != "s"))
    throw Error(
        fmt::format("--fix-budget {}: give seconds (600), or a multiple of the first run "
                    "(3x)",
                    text));
  return unit == "x" ? FixBudget{number, 0} : FixBudget{0, number};
}

ExaminedProgram under(const ExaminedProgram& program, const std::string& strategy) {
  ExaminedProgram other = program;
  std::visit([&](auto& options) { options.strategy = strategy; }, other);
  return other;
}

Report examine(const std::vector<ExaminedProgram>& programs, Purpose purpose,
               const ExaminationOptions& options, Streams streams) {
  Runs runs(purpose, options, streams);
  if (programs.size() > 1) runs.isolate(programs);
  return report_of(runs, [&] {
    for (const auto& program : programs) {
      const auto* python = std::get_if<ProgramOptions>(&program);
      if (python != nullptr && python->strategy == kOneProcess) {
        ParityOptions parity;
        if (python->steps > 0) parity.steps = python->steps;
        add_beside_one_process(runs, *python, parity);
      } else {
        runs.add(program);
      }
    }
    if (options.repeats > 0)
      runs.repeat(worth_timing(read_examination(runs.folder()), programs), options.repeats);
  });
}

namespace {

void make_fix_runs(Runs& runs, const ExaminedProgram& program, const ExaminationOptions& options) {
  std::vector<ExaminedProgram> programs = {program};
  runs.add(program);
  // False once the time is over.
  const auto try_each = [&](const std::vector<std::string>& strategies) {
    const auto reduced = reductions(read_examination(runs.folder())).dump();
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      if (!runs.time_left(strategies.size() - i)) return false;
      programs.push_back(quiet(under(program, strategies[i])));
      if (auto* python = std::get_if<ProgramOptions>(&programs.back()))
        python->environment["DDP_DOCTOR_REDUCTIONS"] = reduced;
      runs.add(programs.back());
    }
    return true;
  };
  const auto possible = strategies_for(program);
  bool time_left = true;
  while (time_left) {  // first the proposed strategies, then those proposed for what is left
    const auto strategies = prescribed(read_examination(runs.folder()), possible);
    if (strategies.empty()) break;
    time_left = try_each(strategies);
  }
  if (const auto together = combined(read_examination(runs.folder()));
      time_left && !together.empty())
    time_left = try_each({together});
  for (const auto& tried :
       time_left ? changes_to_try(read_examination(runs.folder())) : std::vector<TriedChange>()) {
    if (!runs.can_change(tried.change.file)) continue;
    if (!runs.time_left(1)) break;
    programs.push_back(quiet(program));
    runs.add(programs.back(), tried);
  }
  if (options.repeats > 0) {
    runs.repeat(worth_timing(read_examination(runs.folder()), programs), options.repeats);
  }
}

}  // namespace

Report examine_and_fix(const ExaminedProgram& program, const ExaminationOptions& options,
                       Streams streams) {
  Runs runs(Purpose::kFix, options, streams);
  runs.isolate({program});
  return report_of(runs, [&] { make_fix_runs(runs, program, options); });
}

Report examine_rounding(const ProgramOptions& program, const ExaminationOptions& options,
                        Streams streams) {
  Runs runs(Purpose::kRun, options, streams);
  runs.isolate({program}, "use --tolerance bits");
  return report_of(runs, [&] {
    runs.add(program);
    if (read_examination(runs.folder()).health() == Health::kInconclusive) return;
    const fs::path folder = rounding_folder(runs.folder());
    fs::create_directory(folder);
    fs::permissions(folder, fs::perms::owner_all);
    if (const auto failure = runs.run_beside(rounding_differently(program), folder))
      throw Error(fmt::format("--tolerance measured: the second run failed: {}", *failure));
  });
}

RunReport read_run(const fs::path& folder, const RunInfo& run, int index) try {
  const auto reason = run.is_script         ? why_not_run(folder, run)
                      : run.failure.empty() ? std::nullopt
                                            : std::optional(run.failure);
  if (reason && index > 0) return report_of_no_run(run, *reason);
  return run.is_script ? report_run(Timeline::load(folder, run), index)
                       : report_program(folder, run, index);
} catch (const nlohmann::json::exception& error) {  // of a fact
  throw Error(
      fmt::format("{}: the record is damaged ({}): repeat the run", folder.string(), error.what()));
}

Report read_examination(const fs::path& folder, const StatedPlacements& stated) {
  if (!fs::is_directory(folder)) {
    throw Error(fmt::format("{}: no such folder; give one that `ddp-doctor run --out` wrote",
                            folder.string()));
  }
  std::vector<RunReport> runs;
  for (const auto& run_folder : run_folders(folder)) {
    RunInfo run = load_run_info(run_folder);
    if (!stated.empty()) run.placement = stated;
    const int index = static_cast<int>(runs.size());
    if (run.repeats >= 0 && run.repeats < index) {
      const bool failed =
          run.is_script ? why_not_run(run_folder, run).has_value() : !run.failure.empty();
      runs[static_cast<std::size_t>(run.repeats)].again_ms.push_back(
          failed ? std::nullopt : median_step_ms(Timeline::load(run_folder, run)));
    } else {
      runs.push_back(read_run(run_folder, run, index));
      if (const auto figures = parity_figures(folder, index); fs::exists(figures))
        add_parity(runs.back(),
                   judge_parity(load_parity_figures(figures), runs.back().info.world_size));
    }
  }
  Report report = make_report(std::move(runs));
  if (const auto twin = rounding_folder(folder); fs::exists(twin) && report.runs.front().magnitudes)
    report.rounding = Distances(report.runs.front().magnitudes(),
                                Magnitudes(Timeline::load(twin, load_run_info(twin))));
  return report;
}

}  // namespace ddp_doctor
