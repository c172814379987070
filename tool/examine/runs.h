// SPDX-License-Identifier: BSD-3-Clause
// The runs of one examination, each in a folder of its own within the examination's.
//
// The first is what the user asked for, and runs where the user is. The others, which try fixes,
// compare or take times, begin from what the first one began from, and what they write is
// discarded (isolation.h), unless the user asked for all of them --in-place.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tool/examine/examination.h"
#include "tool/launch/isolation.h"
#include "tool/launch/prepared_ranks.h"
#include "tool/launch/run_folder.h"
#include "tool/system/interrupt.h"

namespace ddp_doctor {

// Ctrl-C: the examination ends with what its runs have shown so far.
struct CutShort {};

class Runs {
 public:
  Runs(Purpose purpose, const ExaminationOptions& options, Streams streams);

  const std::filesystem::path& folder() const { return folder_->path(); }
  // A report may read records later: the folder, which may be temporary, lasts as long as this.
  std::shared_ptr<const void> records() const { return folder_; }

  // Before the first run: keeps the others of these programs apart. Throws Error if it cannot, with
  // what the user can do instead.
  void isolate(const std::vector<ExaminedProgram>& programs,
               const char* otherwise =
                   "give --in-place; then each run finds what the others wrote "
                   "there, and may overwrite your files");

  // Whether a run that changes this file can be tried.
  bool can_change(const std::filesystem::path& file) const;

  // False once the time for trials is over; the report says so. `left`: of how many.
  bool time_left(std::size_t left);

  // The index of the run that add() would make.
  int next() const { return count_; }

  // Throws Error if the first run could not start; for later ones the report says so.
  void add(const ExaminedProgram& program, const std::optional<TriedChange>& tried = {},
           int repeats = -1);

  // A run that the report does not show, apart from the user's folders. A failure, if it could not
  // start.
  std::optional<std::string> run_beside(const ExaminedProgram& program,
                                        const std::filesystem::path& folder);

  // In turn, so that other load on this machine affects all of them; in alternating order, so that
  // none is always first. Each is a run and its index.
  void repeat(std::vector<std::pair<int, ExaminedProgram>> programs, int rounds);

  // The last word: what the runs wrote, and what was left out, for the report.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<std::string> run(RunInfo& run, const ExaminedProgram& program,
                                 const std::filesystem::path& folder);
  std::optional<std::string> run_apart(RunInfo& run, ProgramOptions options,
                                       const std::filesystem::path& folder);
  void tell(const std::filesystem::path& folder, const RunInfo& run, Clock::duration took);
  void say(const std::string& text);
  std::function<void(std::int64_t)> progress(const std::string& name, std::int64_t steps);

  const Purpose purpose_;
  const ExaminationOptions options_;
  const Streams streams_;
  const InterruptGuard interrupt_;
  const std::shared_ptr<const RunFolder> folder_;
  PreparedRanks prepared_;
  const bool terminal_;
  std::set<std::filesystem::path> rehearsed_;  // TorchScript programs that have run
  int count_ = 0;
  std::filesystem::path first_;  // the first run's folder
  std::unique_ptr<Isolation> isolation_;
  int isolated_ = 0;
  std::set<std::filesystem::path> written_;
  std::vector<std::string> notes_;
  std::optional<Clock::time_point> deadline_;  // of trials
  std::string budget_;                         // in words
};

}  // namespace ddp_doctor
