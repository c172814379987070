// SPDX-License-Identifier: BSD-3-Clause
// run.json: what the launcher knows about a run, stored next to the ranks' records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/record/change.h"
#include "lib/record/stated.h"

namespace ddp_doctor {

// How a rank's process ended, as the launcher saw it.
struct RankExit {
  int rank = 0;
  enum class Kind { kUnknown, kExited, kSignaled, kTimedOut, kStopped } kind = Kind::kUnknown;
  int code = 0;              // exit status or signal number
  std::int64_t time_ns = 0;  // CLOCK_REALTIME
  // From its progress map; step 0 if it did not reach the first step.
  std::int64_t step = 0;
  std::string phase;
  std::string last_words;  // the end of what it wrote to stderr
};

// It ended by itself: ddp-doctor did not stop it.
bool fell(const RankExit& exit);

// What ended a run's programs.
enum class Ending {
  kOwn,          // they ended by themselves, or failed
  kInterrupted,  // a signal that ddp-doctor got
  kStopAfter,    // --stop-after: every rank had done that many steps
  kFailFast,     // --fail-fast: a finding
};

// What the runs of an examination are for.
enum class Purpose {
  kRun,      // the first is diagnosed, the others are for comparison
  kCompare,  // each is diagnosed, and they are compared
  kFix,      // the first is diagnosed, the others try its prescriptions
};

// A change that a run tries, and the finding that it is for, as proof.h names it.
struct TriedChange {
  std::string finding;
  Change change;
};

inline constexpr const char* kAsChanged = "as-changed";  // the strategy of such a run

// One run: what was started, by what strategy, and how its processes ended.
struct RunInfo {
  int index = 0;  // position in the examination; 0 is the run that is judged
  Purpose purpose = Purpose::kRun;
  int repeats = -1;  // index of the run that is run once more, for its step times only; -1: none
  bool is_script = false;  // a TorchScript program; otherwise one in Python, or a command
  std::string program;
  std::string strategy = "as-is";
  int world_size = 1;
  std::int64_t steps_wanted = 0;  // 0: not known
  std::map<std::string, std::string> settings;
  StatedPlacements placement;
  std::vector<RankExit> exits;
  Ending ending = Ending::kOwn;
  std::int64_t ended_ns = 0;  // CLOCK_REALTIME; what failed later did so because it was ended
  std::optional<TriedChange> tried;  // the program is not the user's own, but changed by this
  std::vector<std::string> notes;    // what was unusual, or was not examined
  std::string failure;               // why nothing could be examined; empty if it could
};

const char* name_of(RankExit::Kind kind);
const char* name_of(Purpose purpose);
const char* name_of(Ending ending);
Ending ending_of(const std::string& name);

// Writes folder/run.json atomically. Throws Error if it cannot be written.
void save_run_info(const std::filesystem::path& folder, const RunInfo& run);
// Without the file, reads the records instead. Throws Error if there are none, or if ddp-doctor did
// not write the file.
RunInfo load_run_info(const std::filesystem::path& folder);

// If every rank has its own launcher, each writes its rank's exit to folder/rank-NNNNN.exit,
// atomically. Throws Error if it cannot be written.
void save_rank_exit(const std::filesystem::path& folder, const RankExit& exit);
// All of these files, by rank.
std::vector<RankExit> load_rank_exits(const std::filesystem::path& folder);

// The run folders of an examination (or the folder itself, if it is one), ordered by index.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& examination);

}  // namespace ddp_doctor
