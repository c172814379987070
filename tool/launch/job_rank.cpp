// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/job_rank.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "lib/error.h"
#include "lib/log.h"
#include "lib/report/compare/make_report.h"
#include "tool/launch/launch.h"
#include "tool/launch/program_launch.h"
#include "tool/launch/run_folder.h"
#include "tool/system/interrupt.h"
#include "tool/system/streams.h"
#include "tool/watch/movement.h"
#include "tool/watch/run_watch.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr auto kLookForPeersEvery = std::chrono::milliseconds(20);
// How long the reporting rank waits for the others once its own program has ended and none of them
// moves.
constexpr auto kWaitForOthers = seconds(20);
// The same when interrupted: torchrun's SIGTERM is followed by SIGKILL after 30 s.
constexpr auto kWaitInterrupted = seconds(5);
// How long a rank whose program failed stays for the reporting one: torchrun ends the others as
// soon as one is gone.
constexpr auto kWaitForReport = seconds(15);

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<int> number_of(const char* name) {
  const std::string text = text_of(name);
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// The folder that the ddp-doctor processes of one job share. The first one creates it, and removes
// what a killed job of the same name left; a shared lock tells whether the folder is in use.
class MeetingPlace {
 public:
  MeetingPlace(const JobRank& self, const std::optional<fs::path>& out) {
    const std::string tmp = text_of("TMPDIR");
    const std::string key = self.job + (out ? fs::absolute(*out).string() : std::string());
    const fs::path name =
        fs::path(tmp.empty() ? "/tmp" : tmp) /
        fmt::format("ddp-doctor-{}-{:016x}", getuid(), std::hash<std::string>()(key));
    lock_file_ = name.string() + ".lock";
    temporary_ = !out;
    examination_ = out ? fs::absolute(*out) : name;
    lock_ = open(lock_file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat owner {};
    if (lock_ < 0 || fstat(lock_, &owner) != 0 || owner.st_uid != getuid()) {
      throw Error(fmt::format("{}: cannot be opened ({}); set TMPDIR to a directory of yours",
                              lock_file_.string(), std::strerror(lock_ < 0 ? errno : EPERM)));
    }
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) {
      try {
        if (!temporary_) RunFolder fresh(examination_);  // requires an empty one
      } catch (const Error&) {
        fs::remove(lock_file_);
        throw;
      }
      if (temporary_) fs::remove_all(examination_);
    }
    // From here on the lock is shared. Another process may still remove an empty folder first.
    while (flock(lock_, LOCK_SH) != 0 && errno == EINTR) {
    }
    make(examination_);
    make(run_folder());
  }
  ~MeetingPlace() {
    if (lock_ < 0) return;
    // The last one to leave removes everything.
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) clear();
    close(lock_);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  fs::path run_folder() const { return examination_ / fmt::format("00-{}", kAsIs); }

  void announce_report() const { std::ofstream(run_folder() / "collected") << '\n'; }
  bool report_announced() const {
    return fs::exists(run_folder() / "collected") || !fs::exists(run_folder());
  }
  void clear() const {
    std::error_code failure;
    fs::remove(run_folder() / "collected", failure);
    if (temporary_) fs::remove_all(examination_, failure);
    if (failure) log::warn("{} cannot be removed: {}", examination_.string(), failure.message());
    fs::remove(lock_file_, failure);
  }

 private:
  static void make(const fs::path& folder) {
    struct stat made {};
    if ((mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) ||
        lstat(folder.c_str(), &made) != 0 || !S_ISDIR(made.st_mode) || made.st_uid != getuid()) {
      throw Error(
          fmt::format("{}: cannot be created as a directory of yours; give another with --out DIR, "
                      "or set TMPDIR",
                      folder.string()));
    }
  }

  fs::path examination_;
  fs::path lock_file_;
  bool temporary_ = false;
  int lock_ = -1;
};

// Waits until every rank of this machine has recorded its exit, or none makes progress.
void wait_for_others(const JobRank& self, const fs::path& folder, const InterruptGuard& interrupt) {
  Movement movement(folder);
  auto moved_at = Clock::now();
  while (static_cast<int>(load_rank_exits(folder).size()) < self.local_world_size) {
    const auto now = Clock::now();
    if (movement.look()) moved_at = now;
    if (now - moved_at > (interrupt.requested() ? kWaitInterrupted : kWaitForOthers)) return;
    std::this_thread::sleep_for(kLookForPeersEvery);
  }
}

void wait_for_report(const MeetingPlace& place, const InterruptGuard& interrupt) {
  const auto end = Clock::now() + kWaitForReport;
  while (!place.report_announced() && Clock::now() < end && !interrupt.requested())
    std::this_thread::sleep_for(kLookForPeersEvery);
}

}  // namespace

std::optional<JobRank> own_rank() {
  const auto rank = number_of("RANK");
  const auto world_size = number_of("WORLD_SIZE");
  const std::string run_id = text_of("TORCHELASTIC_RUN_ID");
  const std::string address = text_of("MASTER_ADDR");
  const std::string port = text_of("MASTER_PORT");
  const bool meeting = !run_id.empty() || (!address.empty() && !port.empty());
  if (!rank || !world_size || !meeting || *rank < 0 || *rank >= *world_size) return {};
  const bool loopback = address == "localhost" || address.starts_with("127.") || address == "::1";
  JobRank self;
  self.rank = *rank;
  self.world_size = *world_size;
  self.local_rank = number_of("LOCAL_RANK").value_or(loopback ? *rank : 0);
  self.local_world_size = number_of("LOCAL_WORLD_SIZE").value_or(loopback ? *world_size : 1);
  // torchrun's folder for errors, less the rank's own part, is of this attempt and of no other.
  const std::string attempt =
      fs::path(text_of("TORCHELASTIC_ERROR_FILE")).parent_path().parent_path().string();
  self.job = fmt::format("{}|{}|{}|{}|{}|{}", run_id, address, port,
                         text_of("TORCHELASTIC_RESTART_COUNT"), *world_size, attempt);
  return self;
}

int examine_own_rank(const ProgramOptions& options, const JobRank& self,
                     const std::optional<fs::path>& out, Streams streams,
                     const std::function<int(Report)>& deliver) {
  InterruptGuard interrupt;
  InterruptGuard::expect_repetition();
  const auto command = words_to_execute(options);
  const MeetingPlace place(self, out);
  const fs::path folder = place.run_folder();
  const bool reports = self.local_rank == 0;
  RunInfo run;
  describe_run(run, options, command);
  run.world_size = self.world_size;
  if (reports) save_run_info(folder, run);

  TorchProcesses torch;
  RunWatch watch(folder, run, options, self.local_world_size, reports, streams.err);
  Launched launched = launch(
      {.programs = {{command, with_probe(own_environment(), options, folder), self.rank, ""}},
       .folder = folder,
       .timeouts = options.timeouts,
       .world_size = self.world_size,
       .pass_on = options.pass_on ? &streams.err : nullptr,
       .meanwhile =
           [&] {
             watch.look();
             if (reports) torch.look(folder);
           },
       .peer_fell =
           [&] {
             const auto ends = load_rank_exits(folder);
             return std::any_of(ends.begin(), ends.end(), fell);
           },
       .ends = [&] { return watch.ends(); }});
  const RankExit own = launched.exits.front();
  save_rank_exit(folder, own);
  if (!reports) {
    if (interrupt.requested()) return exit_code::kInterrupted;
    if (launched.ending != Ending::kOwn) return exit_code::kHealthy;
    if (own.kind == RankExit::Kind::kExited && own.code == 0) return exit_code::kHealthy;
    wait_for_report(place, interrupt);
    return own.kind == RankExit::Kind::kExited ? own.code : 1;
  }

  wait_for_others(self, folder, interrupt);
  launched.exits = load_rank_exits(folder);
  // Another rank failed: then torchrun's signal only followed from that.
  if (std::any_of(launched.exits.begin(), launched.exits.end(), fell))
    launched.ending = Ending::kOwn;
  place.announce_report();
  settle(run, folder, launched, torch, options);
  save_run_info(folder, run);
  struct Clearing {
    const MeetingPlace& place;
    ~Clearing() { place.clear(); }
  } clearing{place};
  if (self.rank != 0) return own.kind == RankExit::Kind::kExited ? own.code : 1;
  if (!run.failure.empty() && interrupt.requested())
    throw Interrupted("interrupted before any step was recorded");
  if (!run.failure.empty()) throw Error(run.failure);
  Report report = make_report({report_program(folder, run, 0)});
  report.interrupted = run.ending == Ending::kInterrupted;
  return deliver(std::move(report));
}

}  // namespace ddp_doctor
