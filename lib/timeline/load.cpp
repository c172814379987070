// A run's timeline from its folder.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <regex>
#include <thread>

#include "lib/error.h"
#include "lib/record/writer.h"
#include "lib/timeline/timeline.h"
#include "lib/timeline/value_checks.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostThreads = 8;
constexpr std::size_t kStepsAtOnce = 16;  // all ranks' observations of so many, before any other

std::optional<int> rank_of(const fs::path& file) {
  static const std::regex pattern("rank-([0-9]{5,})\\.sqlite");
  std::smatch match;
  const std::string name = file.filename().string();
  if (!std::regex_match(name, match, pattern)) return {};
  return std::stoi(match[1]);
}

// Calls work(i) for every i below `count`, several at once; throws what the first failure threw.
template <class Work>
void in_parallel(std::size_t count, const Work& work) {
  std::mutex mutex;
  std::size_t next = 0;
  std::exception_ptr failure;
  const auto run = [&] {
    for (;;) {
      std::size_t mine = 0;
      {
        const std::lock_guard lock(mutex);
        if (next == count || failure) return;
        mine = next++;
      }
      try {
        work(mine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t most = std::min<std::size_t>(
      {count, kMostThreads, std::max(1U, std::thread::hardware_concurrency())});
  for (std::size_t i = 1; i < most; ++i) threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

// Step by step and not rank by rank: what ranks have in common is kept once, and the rest is let go
// before the next step.
void Timeline::read_details(const std::map<int, fs::path>& files) {
  in_parallel((steps.size() + kStepsAtOnce - 1) / kStepsAtOnce, [&](std::size_t batch) {
    const std::size_t begin = batch * kStepsAtOnce;
    const std::size_t end = std::min(steps.size(), begin + kStepsAtOnce);
    for (const auto& source : files) {
      const int rank = source.first;
      std::map<std::int64_t, TimelineStep*> by_recorded;
      for (std::size_t i = begin; i < end; ++i) {
        const auto* seen = steps[i].ranks[static_cast<std::size_t>(rank)];
        if (seen != nullptr) by_recorded[steps[i].recorded(rank)] = &steps[i];
      }
      if (by_recorded.empty()) continue;
      RecordReader(source.second)
          .each_details(by_recorded.begin()->first, by_recorded.rbegin()->first,
                        [&](const StepRecord& seen) {
                          const auto step = by_recorded.find(seen.step);
                          if (step != by_recorded.end()) add_details(*step->second, rank, seen);
                        });
    }
    for (std::size_t i = begin; i < end; ++i) complete_details(steps[i]);
  });
}

Timeline Timeline::load(const fs::path& folder, RunInfo run) {
  Readers readers;
  std::map<int, fs::path> files;
  std::vector<RankRecord> records;
  std::vector<std::string> refusals;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const auto rank = rank_of(entry.path());
    if (!rank) continue;
    try {
      RecordReader reader(entry.path());
      records.push_back(reader.read_outline());
      records.back().calls = read_calls(calls_file(folder, *rank));
      readers.emplace(*rank, std::move(reader));
      files.emplace(*rank, entry.path());
    } catch (const Error& error) {
      refusals.push_back(error.what());
    }
  }
  if (failure) throw Error(fmt::format("{}: {}", folder.string(), failure.message()));
  if (records.empty()) {
    throw Error(
        refusals.empty()
            ? fmt::format(
                  "{}: no rank-*.sqlite in it; give a folder that `ddp-doctor run --out` wrote",
                  folder.string())
            : refusals.front());
  }
  Timeline timeline = assemble(std::move(run), std::move(records));
  timeline.read_details(files);
  for (int rank = 0; rank < timeline.run.world_size; ++rank) {
    auto stack = read_stack(stack_file(folder, rank));
    if (!stack.empty()) timeline.stacks[rank] = std::move(stack);
    auto native = read_native_stack(native_stack_file(folder, rank));
    if (!native.empty()) timeline.native_stacks[rank] = std::move(native);
  }
  for (auto& refusal : refusals) timeline.notes.push_back(std::move(refusal));

  const bool all = static_cast<int>(readers.size()) == timeline.run.world_size;
  for (auto& step : timeline.steps) {
    if (all && !step.weight_drift) compute_drift(timeline, step, timeline.own_ids_, &readers);
  }
  const auto* first = timeline.step(1);
  if (all && first != nullptr && first->complete())
    timeline.mean_check = check_mean(timeline, *first, timeline.own_ids_, readers);
  return timeline;
}

}  // namespace ddp_doctor
