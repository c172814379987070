// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examine/runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "lib/error.h"
#include "lib/report/compare/change.h"
#include "tool/launch/program_launch.h"
#include "tool/launch/program_run.h"
#include "tool/launch/script_run.h"
#include "tool/system/streams.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::string strategy_of(const ExaminedProgram& program) {
  return std::visit([](const auto& options) { return options.strategy; }, program);
}

std::string name_of(const ExaminedProgram& program) {
  if (const auto* script = std::get_if<ScriptOptions>(&program)) return script->program.string();
  return name_of_program(std::get<ProgramOptions>(program));
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

}  // namespace

Runs::Runs(Purpose purpose, const ExaminationOptions& options, Streams streams)
    : purpose_(purpose),
      options_(options),
      streams_(streams),
      folder_(std::make_shared<const RunFolder>(options.out)),
      terminal_(isatty(STDERR_FILENO) == 1) {}

void Runs::isolate(const std::vector<ExaminedProgram>& programs, const char* otherwise) {
  std::vector<ProgramOptions> writers;  // a TorchScript program writes nothing
  for (const auto& program : programs) {
    if (const auto* options = std::get_if<ProgramOptions>(&program)) writers.push_back(*options);
  }
  if (options_.in_place || writers.empty()) return;
  try {
    isolation_ = std::make_unique<Isolation>(writers, folder());
  } catch (const Error& error) {
    throw Error(fmt::format(
        "the program would run more than once, and the runs after the first cannot be isolated "
        "from {} ({}): {}",
        fs::current_path().string(), error.what(), otherwise));
  }
  if (!options_.quiet)
    streams_.err << fmt::format(
                        "ddp-doctor: runs after the first get {}; what they write there is "
                        "discarded\n",
                        isolation_->describe())
                 << std::flush;
}

bool Runs::can_change(const fs::path& file) const { return isolation_ && isolation_->covers(file); }

bool Runs::time_left(std::size_t left) {
  if (!deadline_ || Clock::now() < *deadline_) return true;
  notes_.push_back(fmt::format("--fix-budget ({}) was used up: {} {} not tried; increase it",
                               budget_, left, left == 1 ? "run was" : "runs were"));
  return false;
}

void Runs::add(const ExaminedProgram& program, const std::optional<TriedChange>& tried,
               int repeats) {
  RunInfo info;
  info.index = count_++;
  info.purpose = purpose_;
  info.repeats = repeats;
  info.tried = tried;
  std::string name = tried ? kAsChanged : strategy_of(program);
  std::replace(name.begin(), name.end(), ':', '-');  // archives of some systems have no colon
  const fs::path folder =
      folder_->path() / fmt::format("{:02}-{:.60}{}", info.index, name,
                                    repeats < 0 ? "" : fmt::format("-again-{:02}", repeats));
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  if (info.index == 0) first_ = folder;
  const auto begun = Clock::now();
  const auto failure = run(info, program, folder);
  say("");
  if (interrupt_.requested()) InterruptGuard::let_go();
  if (failure && info.index == 0) {
    if (interrupt_.requested()) throw Interrupted("interrupted before any step was recorded");
    throw Error(*failure);
  }
  if (interrupt_.requested()) throw CutShort();
  const auto took = Clock::now() - begun;
  if (info.index == 0 && purpose_ == Purpose::kFix) {
    const auto budget = options_.budget.of(took);
    deadline_ = Clock::now() + budget;
    budget_ = fmt::format("{:.3g} s", std::chrono::duration<double>(budget).count());
  }
  if (purpose_ != Purpose::kRun && repeats < 0 && !options_.quiet) tell(folder, info, took);
}

// A failure, if nothing could be examined.
std::optional<std::string> Runs::run(RunInfo& info, const ExaminedProgram& program,
                                     const fs::path& folder) {
  if (const auto* given = std::get_if<ScriptOptions>(&program)) {
    ScriptOptions script = *given;
    script.rehearsed = !rehearsed_.insert(script.program).second;
    const bool alone = script.world_size == 1;  // perhaps until all is compared
    run_script(info, script, folder, prepared_,
               progress(script.strategy, alone ? 0 : script.steps));
    const auto failure = why_not_run(folder, info);
    if (failure) rehearsed_.erase(script.program);
    return failure;
  }
  const auto& options = std::get<ProgramOptions>(program);
  if (info.index > 0) return run_apart(info, options, folder);
  if (!options.pass_on) {
    run_program(info, options, folder, streams_, progress(name_of(program), 0));
  } else {
    run_program(info, options, folder, streams_);
  }
  return info.failure.empty() ? std::nullopt : std::optional(info.failure);
}

std::optional<std::string> Runs::run_apart(RunInfo& info, ProgramOptions options,
                                           const fs::path& folder) {
  if (deadline_) {
    options.deadline = deadline_;
    options.why_deadline =
        fmt::format("--fix-budget ({}) ended this run; increase it for a whole one", budget_);
  }
  const auto on_step =
      info.repeats >= 0
          ? std::function<void(std::int64_t)>()
          : progress(name_of_program(options) + " " + (info.tried ? kAsChanged : options.strategy),
                     0);
  try {
    std::unique_ptr<View> view;
    if (isolation_) {
      std::vector<Replaced> replaced;
      if (info.tried) replaced.push_back({info.tried->change.file, apply(info.tried->change)});
      view = isolation_->view(replaced);
      ++isolated_;
    }
    options.view = view.get();
    run_program(info, options, folder, streams_, on_step);
    if (view) {
      for (const auto& file : view->written()) written_.insert(file);
    }
  } catch (const Error& error) {
    info.failure = error.what();
    describe_run(info, options, words_to_execute(options));
    save_run_info(folder, info);
  }
  return info.failure.empty() ? std::nullopt : std::optional(info.failure);
}

std::optional<std::string> Runs::run_beside(const ExaminedProgram& program,
                                            const fs::path& folder) {
  RunInfo info;
  info.index = count_;  // never written among those of the report
  const auto failure = run(info, program, folder);
  say("");
  if (interrupt_.requested()) throw CutShort();
  return failure;
}

void Runs::repeat(std::vector<std::pair<int, ExaminedProgram>> programs, int rounds) {
  if (!options_.quiet && !terminal_ && !programs.empty())
    streams_.err << fmt::format(
                        "ddp-doctor: for the step times, the program runs {} times more; "
                        "--repeats 0 omits this\n",
                        static_cast<std::size_t>(rounds) * programs.size())
                 << std::flush;
  for (int round = 0; round < rounds; ++round) {
    if (!time_left(static_cast<std::size_t>(rounds - round) * programs.size())) break;
    say(fmt::format("timing: round {} of {}", round + 1, rounds));
    for (const auto& [index, program] : programs) add(unexamined(program), {}, index);
    std::reverse(programs.begin(), programs.end());
  }
  say("");
}

void Runs::finish() {
  if (!written_.empty()) {
    const std::string example =
        written_.begin()->lexically_relative(fs::current_path()).generic_string();
    notes_.push_back(fmt::format("the {} after the first wrote {} {}, e.g. {}; {} discarded",
                                 isolated_ == 1 ? "run" : fmt::format("{} runs", isolated_),
                                 written_.size(), written_.size() == 1 ? "file" : "files",
                                 example.starts_with("..") ? written_.begin()->string() : example,
                                 written_.size() == 1 ? "it was" : "they were"));
  }
  if (notes_.empty()) return;
  RunInfo first = load_run_info(first_);
  first.notes.insert(first.notes.end(), notes_.begin(), notes_.end());
  notes_.clear();
  save_run_info(first_, first);
}

void Runs::tell(const fs::path& folder, const RunInfo& info, Clock::duration took) {
  const RunReport report = read_run(folder, load_run_info(folder), info.index);
  streams_.err << fmt::format("ddp-doctor: run {}, {} {}: {} ({:.1f} s)\n", info.index + 1,
                              info.program, info.strategy, report.outcome,
                              std::chrono::duration<double>(took).count())
               << std::flush;
}

void Runs::say(const std::string& text) {
  if (terminal_) streams_.err << "\r\x1b[K" << text << std::flush;
}

std::function<void(std::int64_t)> Runs::progress(const std::string& name, std::int64_t steps) {
  if (!terminal_) return {};
  say(name);
  return [this, name, steps](std::int64_t step) {
    say(steps > 0 ? fmt::format("{}: step {} of {}", name, step, steps)
                  : fmt::format("{}: step {}", name, step));
  };
}

}  // namespace ddp_doctor
