// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examination.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>

#include "lib/error.h"
#include "lib/record/run_info.h"
#include "lib/record/worker.h"
#include "lib/report/proof.h"
#include "tool/command.h"
#include "tool/interrupt.h"
#include "tool/prepared_ranks.h"
#include "tool/program_launch.h"
#include "tool/program_run.h"
#include "tool/run_folder.h"
#include "tool/script_run.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::string strategy_of(const ExaminedProgram& program) {
  return std::visit([](const auto& options) { return options.strategy; }, program);
}

std::vector<std::string> strategies_for(const ExaminedProgram& program) {
  if (std::holds_alternative<ScriptOptions>(program))
    return {std::begin(kScriptStrategies), std::end(kScriptStrategies)};
  return {std::begin(kProgramStrategies), std::end(kProgramStrategies)};
}

// With as little overhead as possible, for step times.
ExaminedProgram unexamined(ExaminedProgram program) {
  constexpr std::int64_t kNever = 1'000'000'000;
  std::visit([](auto& options) { options.every = kNever; }, program);
  if (auto* options = std::get_if<ProgramOptions>(&program)) {
    options->warmup = 0;
    options->pass_on = false;
  }
  return program;
}

// Ctrl-C: the examination ends with what its runs have shown so far.
struct CutShort {};

// The runs of one examination, each in a folder of its own within the examination's.
class Runs {
 public:
  Runs(Purpose purpose, const ExaminationOptions& options, Streams streams)
      : purpose_(purpose), streams_(streams), folder_(options.out) {}

  const fs::path& folder() const { return folder_.path(); }

  // Throws Error if the first run could not start; for later ones the report says so.
  void add(const ExaminedProgram& program, int repeats = -1) {
    RunInfo run;
    run.index = count_++;
    run.purpose = purpose_;
    run.repeats = repeats;
    const fs::path folder =
        folder_.path() / fmt::format("{:02}-{:.60}{}", run.index, strategy_of(program),
                                     repeats < 0 ? "" : fmt::format("-again-{:02}", repeats));
    fs::create_directory(folder);
    fs::permissions(folder, fs::perms::owner_all);
    std::optional<std::string> failure;
    if (const auto* given = std::get_if<ScriptOptions>(&program)) {
      ScriptOptions script = *given;
      script.rehearsed = !rehearsed_.insert(script.program).second;
      run_script(run, script, folder, prepared_, progress(script.strategy, script.steps));
      clear_progress();
      failure = why_not_run(folder, run);
      if (failure) rehearsed_.erase(script.program);
    } else {
      const auto& options = std::get<ProgramOptions>(program);
      if (!options.pass_on && repeats < 0)
        say(fmt::format("{} under {}", name_of_program(options), options.strategy));
      run_program(run, options, folder, streams_);
      clear_progress();
      if (!run.failure.empty()) failure = run.failure;
    }
    if (interrupt_.requested()) InterruptGuard::let_go();
    if (failure && run.index == 0) {
      if (interrupt_.requested()) throw Interrupted("interrupted before any step was recorded");
      throw Error(*failure);
    }
    if (interrupt_.requested()) throw CutShort();
  }

  // In turn, so that other load on this machine affects all of them; in alternating order, so that
  // none is always first.
  void repeat(std::vector<std::pair<int, ExaminedProgram>> programs, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      say(fmt::format("timing: round {} of {}", round + 1, rounds));
      for (const auto& [index, program] : programs) add(unexamined(program), index);
      std::reverse(programs.begin(), programs.end());
    }
    clear_progress();
  }

 private:
  void say(const std::string& text) {
    if (terminal_) streams_.err << "\r\x1b[K" << text << std::flush;
  }
  void clear_progress() { say(""); }
  std::function<void(std::int64_t)> progress(const std::string& strategy, std::int64_t steps) {
    if (!terminal_) return {};
    return [this, strategy, steps](std::int64_t step) {
      say(fmt::format("{}: step {} of {}", strategy, step, steps));
    };
  }

  const Purpose purpose_;
  const Streams streams_;
  const InterruptGuard interrupt_;
  const RunFolder folder_;
  PreparedRanks prepared_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::set<fs::path> rehearsed_;  // TorchScript programs that have run
  int count_ = 0;
};

// What the runs that `work` makes have shown, up to Ctrl-C.
Report report_of(const Runs& runs, const std::function<void()>& work) {
  bool interrupted = false;
  try {
    work();
  } catch (const CutShort&) {
    interrupted = true;
  }
  Report report = read_examination(runs.folder());
  report.interrupted = interrupted;
  return report;
}

// Runs whose step times can be compared.
std::vector<std::pair<int, ExaminedProgram>> worth_timing(
    const Report& report, const std::vector<ExaminedProgram>& programs) {
  std::vector<std::pair<int, ExaminedProgram>> worth;
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    if (report.runs[i].completed && report.runs[i].step_time)
      worth.emplace_back(static_cast<int>(i), programs[i]);
  }
  if (worth.size() < 2) worth.clear();
  return worth;
}

}  // namespace

ExaminedProgram under(const ExaminedProgram& program, const std::string& strategy) {
  ExaminedProgram other = program;
  std::visit([&](auto& options) { options.strategy = strategy; }, other);
  return other;
}

Report examine(const std::vector<ExaminedProgram>& programs, Purpose purpose,
               const ExaminationOptions& options, Streams streams) {
  Runs runs(purpose, options, streams);
  return report_of(runs, [&] {
    for (const auto& program : programs) runs.add(program);
    if (options.repeats > 0)
      runs.repeat(worth_timing(read_examination(runs.folder()), programs), options.repeats);
  });
}

namespace {

void make_fix_runs(Runs& runs, const ExaminedProgram& program, const ExaminationOptions& options) {
  std::vector<ExaminedProgram> programs = {program};
  runs.add(program);
  const auto try_each = [&](const std::vector<std::string>& strategies) {
    for (const auto& strategy : strategies) {
      programs.push_back(under(program, strategy));
      if (auto* options = std::get_if<ProgramOptions>(&programs.back()))
        options->pass_on = false;  // its output was shown the first time
      runs.add(programs.back());
    }
  };
  const auto possible = strategies_for(program);
  for (;;) {  // first the proposed strategies, then those proposed for what is left
    const auto strategies = prescribed(read_examination(runs.folder()), possible);
    if (strategies.empty()) break;
    try_each(strategies);
  }
  if (const auto together = combined(read_examination(runs.folder())); !together.empty())
    try_each({together});
  if (options.repeats > 0) {
    runs.repeat(worth_timing(read_examination(runs.folder()), programs), options.repeats);
  }
}

}  // namespace

Report examine_and_fix(const ExaminedProgram& program, const ExaminationOptions& options,
                       Streams streams) {
  Runs runs(Purpose::kFix, options, streams);
  return report_of(runs, [&] { make_fix_runs(runs, program, options); });
}

Report read_examination(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error(fmt::format("{}: no such folder; give one that `ddp-doctor run --out` wrote",
                            folder.string()));
  }
  std::vector<RunReport> runs;
  for (const auto& run_folder : run_folders(folder)) {
    const RunInfo run = load_run_info(run_folder);
    const int index = static_cast<int>(runs.size());
    const auto reason = run.is_script         ? why_not_run(run_folder, run)
                        : run.failure.empty() ? std::nullopt
                                              : std::optional(run.failure);
    if (run.repeats >= 0 && run.repeats < index) {
      runs[static_cast<std::size_t>(run.repeats)].again_ms.push_back(
          reason ? std::nullopt : median_step_ms(Timeline::load(run_folder, run)));
    } else if (reason && !runs.empty()) {
      runs.push_back(report_of_no_run(run, *reason));
    } else if (run.is_script) {
      runs.push_back(report_run(Timeline::load(run_folder, run), index));
    } else {
      runs.push_back(report_program(run_folder, run, index));
    }
  }
  return make_report(std::move(runs));
}

}  // namespace ddp_doctor
