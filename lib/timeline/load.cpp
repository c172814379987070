// SPDX-License-Identifier: BSD-3-Clause
// A run's timeline from its folder.
#include <fmt/format.h>

#include <regex>

#include "lib/error.h"
#include "lib/record/writer.h"
#include "lib/timeline/in_parallel.h"
#include "lib/timeline/replica_sets.h"
#include "lib/timeline/seen_steps.h"
#include "lib/timeline/timeline.h"
#include "lib/timeline/value_checks.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::optional<int> rank_of(const fs::path& file) {
  static const std::regex pattern("rank-([0-9]{5,})\\.sqlite");
  std::smatch match;
  const std::string name = file.filename().string();
  if (!std::regex_match(name, match, pattern)) return {};
  return std::stoi(match[1]);
}

}  // namespace

Timeline Timeline::load(const fs::path& folder, RunInfo run, std::optional<std::int64_t> until) {
  std::map<int, fs::path> files;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (const auto rank = rank_of(entry.path())) files.emplace(*rank, entry.path());
  }
  if (failure) throw Error(fmt::format("{}: {}", folder.string(), failure.message()));

  struct Outline {
    int rank;
    std::optional<RankRecord> record;
    std::string refusal;
  };
  std::vector<Outline> outlines;
  for (const auto& [rank, file] : files) outlines.push_back({rank, {}, {}});
  in_parallel(outlines.size(), [&](std::size_t i) {
    Outline& outline = outlines[i];
    try {
      outline.record = RecordReader(files.at(outline.rank)).read_outline();
      outline.record->calls = read_calls(calls_file(folder, outline.rank));
    } catch (const Error& error) {
      outline.refusal = error.what();
    }
  });
  std::vector<RankRecord> records;
  std::vector<std::string> refusals;
  for (auto& [rank, record, refusal] : outlines) {
    if (record) {
      records.push_back(std::move(*record));
    } else {
      refusals.push_back(std::move(refusal));
      files.erase(rank);
    }
  }
  if (records.empty()) {
    throw Error(refusals.empty() ? fmt::format("{}: contains no rank-*.sqlite file; give a folder "
                                               "that `ddp-doctor run --out` wrote",
                                               folder.string())
                                 : refusals.front());
  }
  Timeline timeline = assemble(std::move(run), std::move(records), until);
  for (const int rank : timeline.ranks()) {
    auto stack = read_stack(stack_file(folder, rank));
    if (!stack.empty()) timeline.stacks[rank] = std::move(stack);
    auto native = read_native_stack(native_stack_file(folder, rank));
    if (!native.empty()) timeline.native_stacks[rank] = std::move(native);
  }
  for (auto& refusal : refusals) timeline.notes.push_back(std::move(refusal));

  const auto seen = std::make_shared<SeenSteps>(timeline.run_ids_, timeline.first_rank(),
                                                timeline.span(), timeline.tensors.size(), files);
  const bool all = files.size() == timeline.ranks().size();
  const KeptTensors kept{files, timeline.own_ids_};
  for (auto& step : timeline.steps) step.details = {seen, seen->add(step.ranks)};
  tell_replicas_apart(timeline);
  for (auto& step : timeline.steps) compute_drift(timeline, step, all ? &kept : nullptr);
  const auto* first = timeline.step(1);
  if (all && timeline.whole() && timeline.replicas.size() == 1 && first != nullptr &&
      first->complete())
    timeline.mean_check = check_mean(timeline, *first, kept);
  return timeline;
}

}  // namespace ddp_doctor
