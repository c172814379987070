// SPDX-License-Identifier: BSD-3-Clause
#include "tool/watch/movement.h"

#include <algorithm>
#include <cstdio>

#include "lib/record/writer.h"

namespace ddp_doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSearchEvery = std::chrono::milliseconds(100);

}  // namespace

void Movement::find_ranks() {
  const auto now = Clock::now();
  if (now - searched_ < kSearchEvery) return;
  searched_ = now;
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_, ignored), end; entry != end;
       entry.increment(ignored)) {
    int rank = 0;
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".progress") && std::sscanf(name.c_str(), "rank-%d.", &rank) == 1)
      ranks_.try_emplace(rank);
  }
}

bool Movement::look() {
  find_ranks();
  std::int64_t newest = 0;
  for (auto& [rank, progress] : ranks_) {
    progress = read_progress(progress_file(folder_, rank));
    newest = std::max(newest, progress.changed_ns);
    step_ = std::max(step_, progress.step);
  }
  const bool moved = newest != newest_;
  newest_ = newest;
  return moved;
}

bool Movement::unexamined() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank.second.phase == Phase::kUnexamined; });
}

std::chrono::nanoseconds Movement::finished_for(int rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || found->second.phase != Phase::kFinished) return {};
  const std::chrono::nanoseconds now = Clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(found->second.changed_ns);
}

}  // namespace ddp_doctor
