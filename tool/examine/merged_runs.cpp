// SPDX-License-Identifier: BSD-3-Clause
#include "tool/examine/merged_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/error.h"
#include "lib/record/run_info.h"
#include "lib/record/writer.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr char kNotOneJob[] = "; give the run directories of one job, or show them one by one";

void add(RunInfo& merged, const RunInfo& other, const fs::path& folder) {
  if (other.world_size != merged.world_size) {
    throw Error(fmt::format("{}: a run of {} ranks, but the others have {}{}", folder.string(),
                            other.world_size, merged.world_size, kNotOneJob));
  }
  merged.exits.insert(merged.exits.end(), other.exits.begin(), other.exits.end());
  for (const auto& note : other.notes) {
    if (std::find(merged.notes.begin(), merged.notes.end(), note) == merged.notes.end())
      merged.notes.push_back(note);
  }
  // Of a machine whose ranks left nothing; the others' did.
  if (!other.failure.empty()) merged.notes.push_back(folder.string() + ": " + other.failure);
}

// Names what `from` holds of each rank in `into`, too.
void link_ranks(const fs::path& from, const fs::path& into) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-")) continue;
    const fs::path link = into / name;
    if (fs::exists(fs::symlink_status(link))) {
      throw Error(fmt::format("{} and {} contain the same rank{}",
                              fs::read_symlink(link).parent_path().string(), from.string(),
                              kNotOneJob));
    }
    fs::create_symlink(fs::absolute(entry.path()), link);
  }
}

}  // namespace

MergedRuns::MergedRuns(const std::vector<fs::path>& folders) : merged_(std::nullopt) {
  std::map<std::string, RunInfo> runs;
  for (const auto& folder : folders) {
    for (const auto& run_folder : run_folders(folder)) {
      const RunInfo run = load_run_info(run_folder);
      const std::string name = fmt::format("{:02}-{}", run.index, run.strategy);
      const fs::path into = merged_.path() / name;
      fs::create_directory(into);
      const auto [known, is_first] = runs.try_emplace(name, run);
      if (!is_first) add(known->second, run, run_folder);
      link_ranks(run_folder, into);
    }
  }
  for (auto& [name, run] : runs) {
    std::sort(run.exits.begin(), run.exits.end(),
              [](const RankExit& a, const RankExit& b) { return a.rank < b.rank; });
    save_run_info(merged_.path() / name, run);
  }
}

}  // namespace ddp_doctor
