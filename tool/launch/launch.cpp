// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <thread>

#include "lib/log.h"
#include "lib/record/writer.h"
#include "tool/launch/guard.h"
#include "tool/launch/native_stacks.h"
#include "tool/launch/prepared_ranks.h"
#include "tool/launch/process_notes.h"
#include "tool/launch/rank_exit.h"
#include "tool/launch/relay.h"
#include "tool/launch/start_process.h"
#include "tool/system/interrupt.h"
#include "tool/system/process_table.h"
#include "tool/system/streams.h"
#include "tool/watch/movement.h"
#include "tool/watch/stall.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Output wakes us at once; polling more often would only take processor time from the ranks. A
// process that has closed its output exits soon.
constexpr auto kTurn = milliseconds(25);
constexpr auto kTurnOfTheEnding = milliseconds(5);
constexpr auto kLookEvery = milliseconds(50);
// Peers of a failed rank notice it at their next collective; this is how long they get to report it
// themselves. A launcher polls its ranks rarely (torchrun of 1.13: every 5 s).
constexpr auto kGrace = seconds(5);
constexpr auto kGraceOfLaunchers = seconds(15);
// From the end of the program to the exit of its process. Interpreters take seconds to clean up,
// and use the processor; some versions of torch hang there, or spin.
constexpr auto kIdleEnd = seconds(10);
constexpr auto kBusyEnd = seconds(120);
constexpr long long kTicksOfIdle = 2;  // threads that wait wake up now and then
// After this long without progress, and then this often, StallJudge is asked.
constexpr auto kQuiet = milliseconds(500);
constexpr auto kJudgeEvery = milliseconds(500);
// A signal handler in C writes a stack.
constexpr auto kStackTimeout = milliseconds(300);
constexpr int kStackSignalBelowMax = 3;  // native.py
// Ranks that are ended together fail in any order, and some before we know why.
constexpr std::int64_t kAtOnce = 500'000'000;  // ns

// One process that was started here.
struct Child {
  Child(const Program& program_, Audience& audience, const fs::path& folder)
      : program(program_),
        relay(audience, program.prefix,
              folder / (program.rank ? fmt::format("rank-{:05}.log", *program.rank)
                                     : std::string("command.log"))) {
    exit.rank = program.rank.value_or(-1);
  }

  const Program& program;
  Relay relay;
  pid_t pid = 0;  // 0: it has ended
  RankExit exit;
};

// A rank that another process started.
struct UnknownProcess {
  UnknownProcess(int rank, pid_t pid_, EndWatch& watch_) : pid(pid_), watch(watch_) {
    exit.rank = rank;
  }

  pid_t pid;
  EndWatch& watch;
  RankExit exit;
  bool over = false;
};

class Run {
 public:
  explicit Run(const Launch& launch)
      : launch_(launch),
        audience_(launch.pass_on),
        movement_(launch.folder),
        stall_(launch.folder, launch.timeouts) {
    for (const auto& program : launch.programs)
      children_.push_back(std::make_unique<Child>(program, audience_, launch.folder));
    launcher_ = std::any_of(launch.programs.begin(), launch.programs.end(),
                            [](const Program& program) { return !program.rank; });
  }
  ~Run() { end_all(RankExit::Kind::kStopped); }

  void start() {
    for (auto& child : children_) start(*child);
    moved_at_ = Clock::now();
  }

  // Waits a moment for output, passes it on, and checks which processes ended or made progress.
  void turn() {
    listen();
    reap();
    if (launcher_) watch_unknown();
    const auto now = Clock::now();
    if (now - looked_at_ < kLookEvery) return;
    looked_at_ = now;
    if (movement_.look()) {
      if (movement_.step() > 1) stall_.moved_after(now - moved_at_);
      moved_at_ = now;
      if (launch_.on_progress) launch_.on_progress(movement_.step());
    }
    if (launch_.meanwhile) launch_.meanwhile();
    end_who_cannot_end();
    const bool someone_fell = anyone_fell() || (launch_.peer_fell && launch_.peer_fell());
    if (someone_fell && !fell_at_) fell_at_ = now;
    // Ranks that still make progress go on: they may finish without waiting for the failed one.
    const auto grace = launcher_ ? kGraceOfLaunchers : kGrace;
    if (fell_at_ && now - std::max(*fell_at_, moved_at_) > grace) end_all(RankExit::Kind::kStopped);
    if (launch_.deadline && now > *launch_.deadline && going()) {
      notes_.push_back(launch_.why_deadline);
      end_all(RankExit::Kind::kStopped);
    }
    if (hopeless(now)) {
      take_stacks();
      end_all(RankExit::Kind::kTimedOut);
    }
  }

  // True while some process is to be waited for.
  bool going() const {
    const bool child =
        std::any_of(children_.begin(), children_.end(), [](const auto& c) { return c->pid != 0; });
    // A launcher may exit before its ranks; after one that failed, its ranks are not waited for.
    const bool unknown = !children_.empty() && !fell(children_.front()->exit) &&
                         std::any_of(unknown_.begin(), unknown_.end(),
                                     [](const auto& s) { return !s.second->over; });
    return child || unknown;
  }

  // Stops everything that runs, and records `kind` as how it ended.
  void end_all(RankExit::Kind kind) {
    std::set<RankExit*> running;
    for (auto& child : children_) {
      if (child->pid != 0) running.insert(&child->exit);
    }
    if (launcher_) {
      notes_read_at_ = {};
      watch_unknown();
    }
    for (auto& [rank, unknown] : unknown_) {
      if (!unknown->over) running.insert(&unknown->exit);
    }
    guard_.end_all();
    for (auto& child : children_) {
      int status = 0;
      if (child->pid != 0 && waitpid(child->pid, &status, 0) == child->pid)
        note_end(*child, status);
    }
    for (auto& [rank, unknown] : unknown_) {
      if (!unknown->over && !unknown->watch.running()) note_end(*unknown);
    }
    for (auto* exit : running) exit->kind = kind;
    if (!running.empty()) log::info("ended {} process(es): {}", running.size(), name_of(kind));
    // No process is left that could write.
    for (auto& child : children_) {
      while (child->relay.take()) {
      }
      child->relay.finish();
    }
    audience_.end_line();
  }

  // Ends the programs as `ending` says. What failed before, for a reason of its own, stays what
  // happened.
  void end_for(Ending ending, int signal = 0) {
    ended_ns_ = exit_time_ns();
    // The signal may have been sent to the ranks as well, or another ddp-doctor ended its own.
    const auto for_this = [&](const RankExit& exit) {
      return fell(exit) && ((exit.kind == RankExit::Kind::kSignaled && exit.code == signal) ||
                            ended_ns_ - exit.time_ns < kAtOnce);
    };
    for (auto& child : children_) {
      if (for_this(child->exit)) child->exit.kind = RankExit::Kind::kStopped;
    }
    for (auto& [rank, unknown] : unknown_) {
      if (for_this(unknown->exit)) unknown->exit.kind = RankExit::Kind::kStopped;
    }
    if (!anyone_fell()) ending_ = ending;
    ended_ns_ -= kAtOnce;
    end_all(RankExit::Kind::kStopped);
    if (ending_ != Ending::kInterrupted) return;
    notes_.push_back(fmt::format("interrupted by {}: every rank was stopped",
                                 signal == SIGINT   ? "Ctrl-C (SIGINT)"
                                 : signal == SIGHUP ? "SIGHUP"
                                                    : "SIGTERM"));
  }

  Launched result() {
    // How the ranks of a failed launcher end tells nothing about them.
    end_all(launcher_ && fell(children_.front()->exit) ? RankExit::Kind::kUnknown
                                                       : RankExit::Kind::kStopped);
    Launched launched;
    launched.notes = notes_;
    launched.ending = ending_;
    launched.ended_ns = ended_ns_;
    for (auto& child : children_) {
      if (child->program.rank) {
        launched.exits.push_back(child->exit);
      } else {
        launched.command = child->exit;
      }
    }
    for (auto& [rank, unknown] : unknown_) launched.exits.push_back(unknown->exit);
    return launched;
  }

 private:
  void start(Child& child);

  // Where the ranks are: in Python, which they write themselves (faulthandler, which needs a
  // moment), and in native code.
  void take_stacks() {
    std::map<fs::path, pid_t> native;
    for (const auto& [rank, process] : known_ranks()) {
      if (!process) continue;
      if (fs::exists(stack_file(launch_.folder, rank)))
        kill(*process, SIGRTMAX - kStackSignalBelowMax);
      native[native_stack_file(launch_.folder, rank)] = *process;
    }
    std::this_thread::sleep_for(kStackTimeout);
    write_native_stacks(native);
  }

  void listen() {
    std::vector<pollfd> readers;
    auto turn = kTurn;
    for (auto& child : children_) {
      if (child->relay.reader() >= 0) {
        readers.push_back({child->relay.reader(), POLLIN, 0});
      } else if (child->pid != 0) {
        turn = kTurnOfTheEnding;
      }
    }
    poll(readers.data(), readers.size(), static_cast<int>(turn.count()));
    const auto began = Clock::now();
    bool heard = false;
    for (auto& child : children_) {
      for (int pieces = 0; pieces < 16 && child->relay.take(); ++pieces) heard = true;
      child->relay.pass_on_late(began);
    }
    const auto now = Clock::now();
    // Until there is a record, what is written is the only sign of life. And while nobody reads
    // what is passed on, programs wait for us.
    if ((heard && !movement_.any()) || now - began > seconds(1)) moved_at_ = now;
  }

  void reap() {
    for (auto& child : children_) {
      int status = 0;
      if (child->pid != 0 && waitpid(child->pid, &status, WNOHANG) == child->pid)
        note_end(*child, status);
    }
  }

  void note_end(Child& child, int status) {
    child.pid = 0;
    const auto kind_before = child.exit.kind;
    const auto code_before = child.exit.code;
    note_status(child.exit, status);
    // It was stopped by us, for a reason that is known.
    if (kind_before != RankExit::Kind::kUnknown) {
      child.exit.kind = kind_before;
      child.exit.code = code_before;
    }
    if (child.program.rank) note_progress(child.exit, launch_.folder);
    // Its output is in the pipe; processes that it left behind may go on writing.
    for (int pieces = 0; pieces < 64 && child.relay.take(); ++pieces) {
    }
    child.exit.last_words = last_words(child.relay);
    log::debug("{} ended: {} {}",
               child.program.rank ? fmt::format("rank {}", *child.program.rank) : "the command",
               name_of(child.exit.kind), child.exit.code);
  }

  void note_end(UnknownProcess& unknown) {
    unknown.over = true;
    if (unknown.exit.kind == RankExit::Kind::kUnknown) {
      unknown.exit.time_ns = exit_time_ns();
      if (const auto status = unknown.watch.status()) note_status(unknown.exit, *status);
    }
    note_progress(unknown.exit, launch_.folder);
  }

  // Processes register by a note when they import torch, and again when they become ranks. A
  // rank that is started again is a new process.
  void watch_unknown() {
    const auto now = Clock::now();
    if (now - notes_read_at_ > kLookEvery) {
      notes_read_at_ = now;
      for (const auto& note : process_notes(launch_.folder)) {
        EndWatch& watch = watches_.try_emplace(note.pid, note.pid).first->second;
        if (!note.rank || !known_.insert(note.pid).second) continue;
        log::debug("process {} registered as rank {}", note.pid, *note.rank);
        unknown_[*note.rank] = std::make_unique<UnknownProcess>(*note.rank, note.pid, watch);
      }
    }
    for (auto& [pid, watch] : watches_) watch.running();
    for (auto& [rank, unknown] : unknown_) {
      if (!unknown->over && !unknown->watch.running()) note_end(*unknown);
    }
  }

  StallJudge::Ranks known_ranks() const {
    StallJudge::Ranks ranks;
    for (const auto& child : children_) {
      if (child->program.rank)
        ranks[*child->program.rank] = child->pid == 0 ? std::nullopt : std::optional(child->pid);
    }
    // What was started for a rank may only stand for it: a script around Python, a client of a
    // container. The rank is who records, if it is visible here.
    for (const auto& note : process_notes(launch_.folder)) {
      const auto started = ranks.find(note.rank.value_or(-1));
      if (started == ranks.end() || !started->second || started->second == note.pid) continue;
      if (has_mapped(note.pid, progress_file(launch_.folder, *note.rank)))
        started->second = note.pid;
    }
    for (const auto& [rank, unknown] : unknown_)
      ranks[rank] = unknown->over ? std::nullopt : std::optional(unknown->pid);
    return ranks;
  }

  int world_size() const {
    int size = launch_.world_size;
    if (size > 0) return size;
    for (const auto& note : process_notes(launch_.folder))
      size = std::max(size, note.world_size.value_or(0));
    return size;
  }

  bool hopeless(Clock::time_point now) {
    if (now - moved_at_ < kQuiet || now - judged_at_ < kJudgeEvery) return false;
    if (movement_.unexamined()) return false;
    judged_at_ = now;
    const auto ranks = known_ranks();
    const bool complete = static_cast<int>(ranks.size()) == world_size();
    const auto why = stall_.why_end(ranks, complete, moved_at_, movement_.any());
    if (why && !why->empty()) notes_.push_back(*why);
    return why.has_value();
  }

  bool anyone_fell() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const auto& c) { return fell(c->exit); }) ||
           std::any_of(unknown_.begin(), unknown_.end(),
                       [](const auto& s) { return fell(s.second->exit); });
  }

  // Whether a process has used no processor time since then.
  bool idle_for(pid_t pid, Clock::duration time) {
    const auto activity = activity_of(pid);
    if (!activity) return true;
    const auto now = Clock::now();
    auto [last, first_look] = ends_.try_emplace(pid, activity->processor_ticks, now);
    if (activity->processor_ticks - last->second.first > kTicksOfIdle)
      last->second = {activity->processor_ticks, now};
    return now - last->second.second >= time;
  }

  // Kills ranks that have finished their program and hang while the interpreter exits.
  void end_who_cannot_end() {
    const auto end = [&](pid_t pid, RankExit& exit) {
      if (pid == 0 || exit.kind != RankExit::Kind::kUnknown || exit.rank < 0) return;
      const auto since = movement_.finished_for(exit.rank);
      if (since < kIdleEnd || (since < kBusyEnd && !idle_for(pid, kIdleEnd))) return;
      notes_.push_back(
          fmt::format("rank {} had finished, but its process did not exit within {} s, so it was "
                      "killed; torch 1.13 and others may hang when the interpreter exits",
                      exit.rank, std::chrono::duration_cast<seconds>(since).count()));
      exit.kind = RankExit::Kind::kExited;
      exit.code = recorded_end(launch_.folder, exit.rank) == "error" ? 1 : 0;
      exit.time_ns = exit_time_ns();
      LaunchGuard::end_one(pid);
    };
    for (auto& child : children_) end(child->pid, child->exit);
    for (auto& [rank, unknown] : unknown_) {
      if (!unknown->over) end(unknown->pid, unknown->exit);
    }
  }

  const Launch& launch_;
  LaunchGuard guard_;
  Audience audience_;
  Movement movement_;
  StallJudge stall_;
  Clock::time_point judged_at_;
  std::vector<std::unique_ptr<Child>> children_;
  bool launcher_ = false;
  std::map<pid_t, EndWatch> watches_;
  std::map<int, std::unique_ptr<UnknownProcess>> unknown_;  // by rank
  std::set<pid_t> known_;                                   // those of ranks
  std::vector<std::string> notes_;
  std::map<pid_t, std::pair<long long, Clock::time_point>> ends_;  // processor ticks, since when
  Ending ending_ = Ending::kOwn;
  std::int64_t ended_ns_ = 0;
  Clock::time_point moved_at_;
  Clock::time_point looked_at_;
  Clock::time_point notes_read_at_;
  std::optional<Clock::time_point> fell_at_;
};

void Run::start(Child& child) {
  Environment environment = child.program.environment;
  environment[guard_.name()] = guard_.value();
  const auto& command = child.program.command;
  if (launch_.prepared != nullptr) {
    child.pid = launch_.prepared->start(command, environment, child.relay.writer());
    guard_.spare(launch_.prepared->process());
  } else {
    child.pid = start_process(command, environment, child.relay.writer(), launch_.view);
  }
  child.relay.release_writer();
  log::debug("process {} is {}: {}", child.pid,
             child.program.rank ? fmt::format("rank {}", *child.program.rank) : "the command",
             fmt::join(command, " "));
}

}  // namespace

Environment own_environment() {
  Environment settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) settings[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return settings;
}

Launched launch(const Launch& launch) {
  InterruptGuard interrupt;
  // The parent may have set it to be ignored, and then no exit status could be read.
  signal(SIGCHLD, SIG_DFL);
  Run run(launch);
  log::info("starting {} process(es); records in {}", launch.programs.size(),
            launch.folder.string());
  run.start();
  while (run.going()) {
    run.turn();
    if (const auto ending = launch.ends ? launch.ends() : std::nullopt) {
      run.end_for(*ending);
      break;
    }
    if (!interrupt.requested()) continue;
    run.end_for(Ending::kInterrupted, interrupt.signal());
    if (InterruptGuard::insisted()) throw Interrupted("interrupted; every rank was stopped");
    break;
  }
  return run.result();
}

}  // namespace ddp_doctor
