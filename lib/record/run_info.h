// SPDX-License-Identifier: BSD-3-Clause
// run.json: what the launcher knows about a run, kept beside the ranks' records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ddp_doctor {

// How a rank's process ended, as the launcher saw it.
struct RankExit {
  int rank = 0;
  enum class Kind { kUnknown, kExited, kSignaled, kTimedOut, kStopped } kind = Kind::kUnknown;
  int code = 0;              // exit status or signal number
  std::int64_t time_ns = 0;  // CLOCK_REALTIME
  // Where its progress map says that it was; step 0 if it did not get to the first one.
  std::int64_t step = 0;
  std::string phase;
  std::string last_words;  // the end of what it wrote to stderr
};

// By itself: not stopped or timed out by ddp-doctor.
bool fell(const RankExit& exit);

// What the runs of an examination are for.
enum class Purpose {
  kRun,      // the first is judged, the others stand beside it
  kCompare,  // each is judged, and their difference is asked for
  kFix,      // the first is judged, the others try its prescriptions
};

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
  std::vector<RankExit> exits;
  std::vector<std::string> notes;  // what was out of the ordinary, or was not examined
  std::string failure;             // why nothing could be examined; empty: it could
};

const char* name_of(RankExit::Kind kind);
const char* name_of(Purpose purpose);

// Writes folder/run.json at once (never half). Throws Error if it cannot be written.
void save_run_info(const std::filesystem::path& folder, const RunInfo& run);
// Without the file, what the records tell. Throws Error where there are none, or it is not ours.
RunInfo load_run_info(const std::filesystem::path& folder);

// Where every rank has a launcher of its own, each leaves the end of its rank in
// folder/rank-NNNNN.exit, at once (never half). Throws Error if it cannot be written.
void save_rank_exit(const std::filesystem::path& folder, const RankExit& exit);
// All that are there, by rank.
std::vector<RankExit> load_rank_exits(const std::filesystem::path& folder);

// The run folders of an examination (or the folder itself, if it is one), ordered by index.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& examination);

}  // namespace ddp_doctor
