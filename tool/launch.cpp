#include "tool/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "lib/error.h"
#include "lib/record/progress.h"
#include "lib/record/worker.h"
#include "lib/record/writer.h"
#include "tool/command.h"
#include "tool/interrupt.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPollEvery = milliseconds(5);
// Peers of a rank that fell notice it at their next collective; so long they may take to say so
// themselves.
constexpr auto kGrace = seconds(5);

fs::path log_file(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{:05}.log", rank);
}

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The rank's own message where it left one, otherwise the end of what it wrote.
std::string last_words(const fs::path& log) {
  constexpr std::streamoff kSearched = 64 * 1024;
  constexpr std::size_t kMost = 4000;
  std::ifstream in(log, std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  in.seekg(std::max<std::streamoff>(0, size - kSearched));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (const auto mark = text.rfind(kErrorMark); mark != std::string::npos) {
    return text.substr(mark + kErrorMark.size(), kMost);
  }
  return text.size() > kMost ? text.substr(text.size() - kMost) : text;
}

// waitpid() that a signal does not cut short: the child's pid when it has ended, 0 while it runs,
// -1 if it is unknown.
pid_t wait_for(pid_t pid, int options, int& status) {
  pid_t got = 0;
  do {
    got = waitpid(pid, &status, options);
  } while (got < 0 && errno == EINTR);
  return got;
}

class Ranks {
 public:
  explicit Ranks(const Launch& launch) : launch_(launch) {
    for (int rank = 0; rank < launch.world_size; ++rank) {
      pids_.push_back(0);
      exits_.push_back({rank});
    }
  }
  ~Ranks() { end_all(RankExit::Kind::kStopped); }

  void start() {
    for (int rank = 0; rank < launch_.world_size; ++rank) start(rank);
  }

  // False when none is left.
  bool reap() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] != 0 && wait_for(pids_[rank], WNOHANG, status) != 0)
        record_exit(rank, status);
    }
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
  }

  bool anyone_fell() const {
    return std::any_of(exits_.begin(), exits_.end(), [](const RankExit& exit) {
      return exit.kind == RankExit::Kind::kSignaled ||
             (exit.kind == RankExit::Kind::kExited && exit.code != 0);
    });
  }

  // Ends those still running, and what they may have started, and notes `kind` as their end.
  void end_all(RankExit::Kind kind) {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] == 0) continue;
      kill(-pids_[rank], SIGKILL);
      kill(pids_[rank], SIGKILL);
      int status = 0;
      wait_for(pids_[rank], 0, status);
      record_exit(rank, status);
      exits_[rank].kind = kind;
    }
  }

  const std::vector<RankExit>& exits() const { return exits_; }

 private:
  void start(int rank) {
    std::vector<std::string> words = launch_.command;
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<std::string> settings = environment(rank);
    std::vector<char*> envp;
    for (auto& setting : settings) envp.push_back(setting.data());
    envp.push_back(nullptr);
    const std::string log = log_file(launch_.folder, rank).string();
    const pid_t parent = getpid();

    const pid_t pid = fork();
    if (pid < 0)
      throw Error(fmt::format("rank {} could not be started: {}", rank, std::strerror(errno)));
    if (pid == 0) {
      // Only async-signal-safe calls from here to exec.
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      const int in = open("/dev/null", O_RDONLY);
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      if (in >= 0) dup2(in, 0);
      if (out >= 0) {
        dup2(out, 1);
        dup2(out, 2);
      }
      execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    setpgid(pid, pid);
    pids_[static_cast<std::size_t>(rank)] = pid;
  }

  // torchrun's environment, with one thread per rank unless the user said otherwise.
  std::vector<std::string> environment(int rank) const {
    std::map<std::string, std::string> settings;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const auto equals = text.find('=');
      if (equals != std::string::npos) settings[text.substr(0, equals)] = text.substr(equals + 1);
    }
    settings.try_emplace("OMP_NUM_THREADS", "1");
    settings["RANK"] = settings["LOCAL_RANK"] = std::to_string(rank);
    settings["WORLD_SIZE"] = settings["LOCAL_WORLD_SIZE"] = std::to_string(launch_.world_size);
    settings["MASTER_ADDR"] = "127.0.0.1";
    settings["MASTER_PORT"] = std::to_string(launch_.port);
    std::vector<std::string> list;
    for (const auto& [key, value] : settings) list.push_back(key + "=" + value);
    return list;
  }

  void record_exit(std::size_t rank, int status) {
    auto& exit = exits_[rank];
    exit.time_ns = wall_clock_ns();
    if (WIFSIGNALED(status)) {
      exit.kind = RankExit::Kind::kSignaled;
      exit.code = WTERMSIG(status);
    } else {
      exit.kind = RankExit::Kind::kExited;
      exit.code = WEXITSTATUS(status);
    }
    const Progress progress = read_progress(progress_file(launch_.folder, exit.rank));
    exit.step = progress.step;
    exit.phase = name_of(progress.phase);
    exit.last_words = last_words(log_file(launch_.folder, exit.rank));
    pids_[rank] = 0;
  }

  const Launch& launch_;
  std::vector<pid_t> pids_;
  std::vector<RankExit> exits_;
};

// The furthest step any rank is in, and whether anything moved since the last look.
class Movement {
 public:
  explicit Movement(const Launch& launch) : launch_(launch) {}

  bool look() {
    std::int64_t newest = 0;
    for (int rank = 0; rank < launch_.world_size; ++rank) {
      const Progress progress = read_progress(progress_file(launch_.folder, rank));
      newest = std::max(newest, progress.changed_ns);
      step_ = std::max(step_, progress.step);
    }
    const bool moved = newest != newest_;
    newest_ = newest;
    return moved;
  }
  std::int64_t step() const { return step_; }

 private:
  const Launch& launch_;
  std::int64_t newest_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace

std::vector<RankExit> launch_ranks(const Launch& launch) {
  InterruptGuard interrupt;
  // Whoever started us may ignore it, and then no child's end could be told.
  signal(SIGCHLD, SIG_DFL);
  Ranks ranks(launch);
  ranks.start();
  Movement movement(launch);
  auto moved_at = Clock::now();
  std::optional<Clock::time_point> fell_at;
  while (ranks.reap()) {
    const auto now = Clock::now();
    if (interrupt.requested()) {
      ranks.end_all(RankExit::Kind::kStopped);
      throw Interrupted("interrupted; every rank was ended");
    }
    if (movement.look()) {
      moved_at = now;
      if (launch.on_progress) launch.on_progress(movement.step());
    }
    if (ranks.anyone_fell() && !fell_at) fell_at = now;
    // Whoever still moves goes on: without a synchronization to wait in, it may get to the end.
    if (fell_at && now - std::max(*fell_at, moved_at) > kGrace)
      ranks.end_all(RankExit::Kind::kStopped);
    if (now - moved_at > launch.stall_timeout) ranks.end_all(RankExit::Kind::kTimedOut);
    std::this_thread::sleep_for(kPollEvery);
  }
  return ranks.exits();
}

}  // namespace ddp_doctor
