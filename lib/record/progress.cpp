// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/progress.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <new>

#include "lib/record/mapped_file.h"
#include "lib/record/plausible.h"

namespace ddp_doctor {
namespace {

constexpr std::array<char, 8> kProgressMagic = {'D', 'D', 'P', 'd', 'p', 'r', 'g', '5'};

}  // namespace

// The file's content, in the byte order of the machine, on which alone changed_ns has a meaning.
struct ProgressMap {
  std::array<char, 8> magic;
  std::uint32_t phase;
  std::uint32_t unused;
  std::int64_t step;
  std::int64_t changed_ns;
  std::int64_t wanted_step;  // the watcher's only, as are these:
  std::int64_t compared;     // the step so far + 1; 0: there is no watcher
  std::int64_t differing;    // the first step at which replicas differ + 1; 0: none
};

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kConnecting:
      return "connecting";
    case Phase::kBatch:
      return "batch";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kCollective:
      return "collective";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kRecording:
      return "recording";
    case Phase::kFinished:
      return "finished";
    case Phase::kUnexamined:
      return "unexamined";
  }
  return "unknown";
}

ProgressWriter::ProgressWriter(const std::filesystem::path& file)
    : file_(file, sizeof(ProgressMap)),
      map_(new (file_.data()) ProgressMap{kProgressMagic, 0, 0, 0, 0, 0, 0, 0}) {}

void ProgressWriter::enter(Phase phase, std::int64_t step) noexcept {
  using std::chrono::steady_clock;  // CLOCK_MONOTONIC, which Linux reads without a system call
  const std::chrono::nanoseconds now = steady_clock::now().time_since_epoch();
  store(map_->phase, static_cast<std::uint32_t>(phase));
  store(map_->step, step);
  store(map_->changed_ns, static_cast<std::int64_t>(now.count()));
}

std::int64_t ProgressWriter::wanted_step() const noexcept { return load(map_->wanted_step); }

Watched ProgressWriter::watched() const noexcept {
  const std::int64_t compared = load(map_->compared);
  const std::int64_t differing = load(map_->differing);
  Watched watched{compared > 0, compared - 1, {}};
  if (differing > 0) watched.differs_at = differing - 1;
  return watched;
}

Progress read_progress(const std::filesystem::path& file) noexcept {
  ProgressMap map;
  if (!read_bytes(file, &map, sizeof map)) return {};
  if (map.magic != kProgressMagic || map.phase > static_cast<std::uint32_t>(Phase::kUnexamined))
    return {};
  return {static_cast<Phase>(map.phase), map.step, plausible_time(map.changed_ns)};
}

bool tell_watched(const std::filesystem::path& file, const Watched& watched) noexcept {
  const std::array<std::int64_t, 2> words = {watched.until + 1,
                                             watched.differs_at.value_or(-1) + 1};
  return write_bytes(file, words.data(), sizeof words, offsetof(ProgressMap, compared));
}

bool ask_for_values(const std::filesystem::path& file, std::int64_t step) noexcept {
  return write_bytes(file, &step, sizeof step, offsetof(ProgressMap, wanted_step));
}

}  // namespace ddp_doctor
