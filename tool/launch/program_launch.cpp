// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/program_launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "lib/error.h"
#include "lib/explain/wording/errors.h"
#include "lib/log.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "tool/launch/process_notes.h"
#include "tool/launch/rank_exit.h"
#include "tool/launch/run_folder.h"
#include "tool/launch/source_change.h"
#include "tool/system/interpreter.h"
#include "tool/system/paths.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// The size that the job gave itself; `otherwise` where it never came so far.
int world_size_of(const fs::path& folder, const std::vector<ProcessNote>& notes, int otherwise) {
  int size = 0;
  for (const auto& note : notes) size = std::max(size, note.rank ? note.world_size.value_or(0) : 0);
  if (size > 0) return size;
  for (const int rank : recorded_ranks(folder)) {
    try {
      return RecordReader(record_file(folder, rank)).header().world_size;
    } catch (const Error& error) {  // Timeline::load will report it
      log::debug("world size: {}", error.what());
    }
  }
  return otherwise;
}

// An error's own line is the last one that begins like "ValueError: ...", otherwise the last line.
std::string telling(const std::string& words) {
  static const std::regex error("^(\\[.*\\]:? ?)?[A-Za-z_.]*(Error|Exception|Interrupt)\\b.*");
  std::istringstream in(words);
  std::string last, last_error;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (std::regex_search(line.substr(0, 500), error)) last_error = line;
  }
  return (last_error.empty() ? last : last_error).substr(0, 500);
}

std::string how(const RankExit& exit) {
  if (exit.kind == RankExit::Kind::kSignaled)
    return fmt::format("was killed by signal {} ({})", exit.code, strsignal(exit.code));
  return fmt::format("ended with exit status {}", exit.code);
}

// With the exceptions that led to it.
std::size_t begin_of_last_traceback(const std::string& words) {
  constexpr std::string_view kBegin = "Traceback (most recent call last)";
  static const std::regex chained("exception( was the direct cause of|, another exception).*\\s*$");
  auto at = words.rfind(kBegin);
  while (at != std::string::npos && at > 0) {
    const std::size_t window = std::min<std::size_t>(at, 100);
    if (!std::regex_search(words.substr(at - window, window), chained)) break;
    const auto before = words.rfind(kBegin, at - 1);
    if (before == std::string::npos) break;
    at = before;
  }
  return at;
}

// The traceback of a rank that raised, otherwise how it ended.
std::string account_of(const RankExit& exit) {
  const auto trace = begin_of_last_traceback(exit.last_words);
  const bool raised = exit.kind == RankExit::Kind::kExited && exit.code == 1;
  if (raised && trace != std::string::npos) return exit.last_words.substr(trace);
  const std::string words = telling(exit.last_words);
  return words.empty() ? how(exit) : fmt::format("{}; its last output: {}", how(exit), words);
}

bool probe_is_off() {
  const char* off = std::getenv("DDP_DOCTOR");
  return off != nullptr && std::strcmp(off, "0") == 0;
}

// What to do where the Python that a command starts has no torch.
std::string python_for_command(const ProgramOptions& options) {
  std::string text =
      "a command starts its own Python, whatever --python and DDP_DOCTOR_PYTHON name; name one "
      "that "
      "has torch in the command";
  const char* given = std::getenv(kPythonSetting);
  std::vector<std::string> words = options.words;
  if (!fs::path(words.front()).filename().string().starts_with("python")) return text;
  for (const auto& interpreter : interpreters(given != nullptr ? given : "")) {
    if (!interpreter.why_not.empty()) continue;
    words.front() = interpreter.path.string();
    return fmt::format("{}: ddp-doctor run -- {}", text, shell_line(words));
  }
  return text;
}

// Why there is no record of any rank, where the program did not simply end well.
// `unprobed`: why processes that load torch lack the probe.
std::string why_no_record(const Launched& launched, const std::set<std::string>& unprobed,
                          const ProgramOptions& options) {
  std::vector<RankExit> ends = launched.exits;
  if (launched.command) ends.push_back(*launched.command);
  const auto who = [](const RankExit& exit) {
    return exit.rank < 0 ? std::string("the command") : fmt::format("rank {}", exit.rank);
  };
  // A process that ended by itself knows why.
  std::stable_sort(ends.begin(), ends.end(), [](const RankExit& a, const RankExit& b) {
    return std::pair(!fell(a), a.time_ns) < std::pair(!fell(b), b.time_ns);
  });
  for (const auto& exit : ends) {
    if (fell(exit)) {
      const std::string words = telling(exit.last_words);
      if (options.is_command() && !options.each_rank && lacks_a_launcher(words)) {
        return fmt::format(
            "{} starts no ranks, but expects the environment of a launcher: {}; let ddp-doctor "
            "start the ranks: ddp-doctor run --nproc-per-node 2 -- {}",
            who(exit), words, shell_line(options.words));
      }
      if (options.is_command() && words.find("No module named 'torch'") != std::string::npos)
        return fmt::format("{} {}: {}; {}", who(exit), how(exit), words,
                           python_for_command(options));
      return fmt::format(
          "{} {} {}{}{}; fix that first: {}", who(exit), how(exit),
          probe_is_off()      ? "(DDP_DOCTOR=0: it was not examined)"
          : !unprobed.empty() ? fmt::format("(it was not examined: {})", *unprobed.begin())
          : options.each_rank ? "before its ddp_doctor::Examination began"
                              : "before torch.distributed was initialized",
          words.empty() ? "" : ": ", words,
          options.pass_on ? "its output is above" : "`ddp-doctor run` shows its output");
    }
    if (exit.kind == RankExit::Kind::kTimedOut) {
      return fmt::format(
          "no progress for {} s, and no process had initialized torch.distributed; if the program "
          "starts slowly, increase --timeout",
          options.timeouts.still.count());
    }
    if (exit.kind == RankExit::Kind::kStopped)
      return "it was stopped before any rank recorded anything; run it again";
  }
  return {};
}

// A script that starts its ranks itself was started once for each rank: each of these starts all
// ranks, unless another one was first (a fixed port).
std::string why_twice(const std::vector<ProcessNote>& notes, const ProgramOptions& options) {
  if (options.is_command()) return {};
  std::set<int> ranks;
  std::map<pid_t, int> children;  // of multiprocessing, those that would be ranks
  for (const auto& note : notes) ++children[note.parent];
  for (const auto& note : notes) {
    if (!note.rank) continue;
    const bool second = !ranks.insert(*note.rank).second;
    const bool sibling = note.parent != getpid() && children[note.parent] > 1;
    if (!second && !sibling) continue;
    return fmt::format(
        "{} starts its ranks itself: {}; run it as a command: ddp-doctor run -- {} {}{}",
        options.program.string(),
        second ? fmt::format("two processes are rank {}", *note.rank)
               : std::string("one rank started several"),
        options.python.empty() ? "python" : options.python, options.program.string(),
        options.words.empty() ? "" : " " + shell_line(options.words));
  }
  return {};
}

std::string sentence_about(const std::string& seen) {
  if (seen == "DataParallel")
    return "uses torch.nn.DataParallel (one process, several devices): there are no ranks to "
           "compare";
  if (seen.starts_with("probe: "))
    return "what it cannot patch in this torch is not examined (" + seen + ")";
  if (seen == "torch imported around the probe")
    return "torch was loaded by an import hook of the program that bypasses sys.meta_path and "
           "PathFinder, so the probe did not start";
  return "uses " + seen + ", which ddp-doctor does not examine";
}

// Why the probe did not start in a process, or did not examine it: it writes that to stderr, which
// `check` does not pass on.
std::set<std::string> failures_of_the_probe(const fs::path& folder) {
  constexpr std::string_view kPrefix = "ddp-doctor: ";
  std::set<std::string> failures;
  std::error_code unreadable;
  for (fs::directory_iterator entry(folder, unreadable), end; entry != end;
       entry.increment(unreadable)) {
    if (entry->path().extension() != ".log") continue;
    std::ifstream in(entry->path());
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(kPrefix) && (line.find("the probe did not start") != std::string::npos ||
                                        line.find("is not examined") != std::string::npos))
        failures.insert(line.substr(kPrefix.size()));
    }
  }
  return failures;
}

std::vector<std::string> notes_about(const std::vector<ProcessNote>& processes, bool recorded,
                                     const std::set<std::string>& unprobed, bool cpp) {
  std::vector<std::string> notes;
  std::set<std::string> seen;
  for (const auto& process : processes) seen.insert(process.seen.begin(), process.seen.end());
  for (const auto& what : seen) notes.push_back(sentence_about(what));
  if (recorded) return notes;
  if (probe_is_off()) {
    notes.emplace_back("DDP_DOCTOR=0 disables the probe");
  } else if (!unprobed.empty()) {
    notes.insert(notes.end(), unprobed.begin(), unprobed.end());
  } else if (processes.empty() && cpp) {
    notes.emplace_back(
        "a program loads LibTorch without Python. It needs a ddp_doctor::Examination "
        "(docs/cpp.md)");
  } else if (processes.empty()) {
    notes.emplace_back(
        "no Python process that imports torch was seen. The probe is loaded "
        "through PYTHONPATH, which containers and other machines do not inherit (docs/python.md). "
        "A C++ program needs a ddp_doctor::Examination (docs/cpp.md)");
  } else if (std::none_of(processes.begin(), processes.end(),
                          [](const auto& process) { return process.distributed; })) {
    notes.emplace_back("no process initialized torch.distributed: nothing to compare");
  } else {
    notes.emplace_back(
        "torch.distributed was initialized, but no rank left a record: nothing to compare");
  }
  return notes;
}

// Ranks whose exit status only their launcher knows: their records and the launcher's own exit
// status tell how they ended.
void judge_unseen_ends(RunInfo& run, const fs::path& folder, const Launched& launched) {
  const auto& command = launched.command;
  // If we stopped a rank, that is why its launcher failed.
  bool explained = !launched.notes.empty();
  std::vector<std::pair<RankExit*, std::string>> unseen;
  for (auto& exit : run.exits) {
    const std::string end = recorded_end(folder, exit.rank);
    explained = explained || fell(exit) || end == "error";
    if (exit.kind == RankExit::Kind::kUnknown) unseen.emplace_back(&exit, end);
  }
  const bool failed = command && fell(*command);
  for (auto& [exit, end] : unseen) {
    if (end == "error" || (failed && !explained)) {
      exit->kind = RankExit::Kind::kExited;
      exit->code = 1;
      if (end.empty() || end == "end")
        exit->last_words = fmt::format("the command that started it {}", how(*command));
    } else if (end == "end") {
      exit->kind = RankExit::Kind::kExited;
      exit->code = 0;
    }
  }
}

// A rank that finished its program, and whose process was then killed by a signal: torch's teardown
// does that now and then (a thread of Gloo wants the interpreter's lock).
void forgive_late_ends(RunInfo& run, const fs::path& folder) {
  for (auto& exit : run.exits) {
    if (exit.kind != RankExit::Kind::kSignaled || exit.code == SIGKILL) continue;
    if (recorded_end(folder, exit.rank).empty()) continue;
    run.notes.push_back(
        fmt::format("rank {} had finished; its process was then killed by signal {} while the "
                    "interpreter shut down",
                    exit.rank, exit.code));
    exit.kind = RankExit::Kind::kExited;
    exit.code = 0;
  }
}

// How many steps the probe examines before it leaves; 0: all of them.
std::int64_t examined_steps(const ProgramOptions& options) {
  if (options.steps == 0 || options.stop_after == 0) return options.steps + options.stop_after;
  return std::min(options.steps, options.stop_after);
}

}  // namespace

std::vector<std::string> words_to_execute(const ProgramOptions& options) {
  if (options.is_command()) {
    std::vector<std::string> words = options.words;
    const fs::path file = find_executable(words.front());
    if (file.empty()) {
      std::error_code ignored;
      const bool there =
          words.front().find('/') != std::string::npos && fs::exists(words.front(), ignored);
      throw Error(
          there ? fmt::format(
                      "{}: is not executable; make it so (chmod +x), or name its interpreter: "
                      "-- bash {}",
                      words.front(), words.front())
                : fmt::format("{}: no such command; check its name, and PATH", words.front()));
    }
    words.front() = file.string();
    return words;
  }
  std::vector<std::string> words = {choose_interpreter(options.python).path.string(),
                                    options.program.string()};
  words.insert(words.end(), options.words.begin(), options.words.end());
  return words;
}

std::string name_of_program(const ProgramOptions& options) {
  return options.is_command() ? shell_line(options.words) : options.program.string();
}

void describe_run(RunInfo& run, const ProgramOptions& options,
                  const std::vector<std::string>& command) {
  run.program = name_of_program(options);
  run.strategy = run.tried ? kAsChanged : options.strategy;
  run.world_size = options.doctor_starts_ranks() ? options.world_size : 1;
  run.placement = options.placement;
  run.settings = {{"every", std::to_string(options.every)},
                  {"warmup", std::to_string(options.warmup)}};
  if (const auto steps = examined_steps(options); steps > 0)
    run.settings["steps"] = std::to_string(steps);
  if (!options.is_command()) {
    run.settings["python"] = command.front();
    if (!options.words.empty()) run.settings["arguments"] = shell_line(options.words);
  }
}

Environment with_probe(Environment environment, const ProgramOptions& options,
                       const fs::path& folder) {
  auto& path = environment["PYTHONPATH"];
  path = python_probe().string() + (path.empty() ? "" : ":" + path);
  environment["DDP_DOCTOR_RECORD"] = fs::absolute(folder).string();
  environment["DDP_DOCTOR_PROGRAM"] = name_of_program(options);
  environment["DDP_DOCTOR_EVERY"] = std::to_string(options.every);
  environment["DDP_DOCTOR_WARMUP"] = std::to_string(options.warmup);
  environment.erase("DDP_DOCTOR_STEPS");
  if (const auto steps = examined_steps(options); steps > 0)
    environment["DDP_DOCTOR_STEPS"] = std::to_string(steps);
  // For programs that have ddp-doctor linked in and cannot know where the rest of it is.
  environment.try_emplace("DDP_DOCTOR_CUDA_LIBRARY", cuda_library().string());
  environment.erase("DDP_DOCTOR_APPLY");
  if (options.strategy != kAsIs && options.strategy != kOneProcess)
    environment["DDP_DOCTOR_APPLY"] = options.strategy;
  for (const auto& [name, value] : options.environment) environment[name] = value;
  return environment;
}

void settle(RunInfo& run, const fs::path& folder, const Launched& launched,
            const TorchProcesses& torch, const ProgramOptions& options) {
  const auto processes = process_notes(folder);
  const auto unprobed = torch.reasons(folder);
  log::debug("{} process(es) loaded the probe", processes.size());
  const bool recorded = !recorded_ranks(folder).empty();
  run.exits = launched.exits;
  run.world_size = world_size_of(folder, processes, run.world_size);
  run.failure = why_twice(processes, options);
  if (run.failure.empty() && !recorded) run.failure = why_no_record(launched, unprobed, options);
  for (auto& exit : run.exits) {
    if (fell(exit)) exit.last_words = account_of(exit);
  }
  judge_unseen_ends(run, folder, launched);
  forgive_late_ends(run, folder);
  run.notes = launched.notes;
  run.ending = launched.ending;
  if (run.ending == Ending::kStopAfter) {
    run.notes.push_back(
        fmt::format("the run was ended after {} steps (--stop-after)", options.stop_after));
  }
  if (run.ending == Ending::kFailFast)
    run.notes.emplace_back("the run was ended at the first error (--fail-fast)");
  run.ended_ns = launched.ended_ns;
  for (const auto& failure : failures_of_the_probe(folder)) run.notes.push_back(failure);
  for (auto& note : notes_about(processes, recorded, unprobed, torch.any_without_python()))
    run.notes.push_back(std::move(note));
  if (recorded && launched.command && fell(*launched.command))
    run.notes.push_back(fmt::format("the command {}", how(*launched.command)));
  if (recorded && launched.command && launched.command->kind == RankExit::Kind::kTimedOut &&
      launched.notes.empty())
    run.notes.push_back(fmt::format("the command was stopped: no progress for {} s",
                                    options.timeouts.still.count()));
}

RunReport report_program(const fs::path& folder, const RunInfo& run, int index) {
  if (!run.failure.empty()) throw Error(run.failure);
  if (recorded_ranks(folder).empty()) {
    RunReport report;
    report.info = run;
    report.notes = run.notes;
    report.outcome = "nothing to examine";
    report.completed = true;
    report.environment["python"] = "";
    const auto processes = process_notes(folder);
    report.environment["backend"] = "no process group";
    report.environment["torch_version"] = processes.empty() ? "unknown" : processes.front().torch;
    report.environment["summary"] = report.outcome;
    return report;
  }
  const Timeline timeline = Timeline::load(folder, run);
  RunReport report = report_run(timeline, index);
  if (std::none_of(timeline.steps.begin(), timeline.steps.end(),
                   [](const TimelineStep& step) { return step.number > 0; })) {
    report.notes.emplace_back(
        "torch.distributed was initialized, but no optimizer step was seen: nothing to compare");
  }
  report.notes.insert(report.notes.end(), run.notes.begin(), run.notes.end());
  const auto python = run.settings.find("python");
  report.place_change = place_by(python == run.settings.end() ? "" : python->second);
  return report;
}

}  // namespace ddp_doctor
