// SPDX-License-Identifier: BSD-3-Clause
// The progress map: a small memory-mapped file per rank with what the rank is doing now, and
// which values the watcher requests.
//
// The rank writes it with plain stores, without system calls or locks, from any thread; watchers
// read the same file. Torn reads are harmless: every field is a single aligned word.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lib/record/mapped_file.h"

namespace ddp_doctor {

enum class Phase : std::uint32_t {
  kStarting = 0,
  kConnecting,
  kBatch,
  kForward,
  kBackward,
  kCollective,
  kOptimizer,
  kRecording,
  kFinished,
  kUnexamined,  // the examination is over, the program goes on
};

const char* name_of(Phase phase);

struct Progress {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;
  std::int64_t changed_ns = 0;  // CLOCK_MONOTONIC, of the last change; 0 before the first
};

// How far the watcher has compared the replicas (lib/timeline/replica_watch.h).
struct Watched {
  bool by_somebody = false;
  std::int64_t until = 0;                  // the replicas have been compared up to this step
  std::optional<std::int64_t> differs_at;  // the first step at which they differ
};

struct ProgressMap;  // what the file holds

class ProgressWriter {
 public:
  // Creates or truncates `file`; throws Error if that is impossible.
  explicit ProgressWriter(const std::filesystem::path& file);

  void enter(Phase phase, std::int64_t step) noexcept;
  // The step for which the watcher requested values; 0: none (replica_watch.h).
  std::int64_t wanted_step() const noexcept;
  // How far the watcher has compared the replicas.
  Watched watched() const noexcept;

 private:
  MappedFile file_;
  ProgressMap* map_;
};

// The rank's current state; the default Progress if the file is missing, too short or not a
// progress map.
Progress read_progress(const std::filesystem::path& file) noexcept;

// Writes how far the replicas have been compared, and where they differ.
bool tell_watched(const std::filesystem::path& file, const Watched& watched) noexcept;
// Requests values of `step` from the rank, without blocking it. False if there is no such map.
bool ask_for_values(const std::filesystem::path& file, std::int64_t step) noexcept;

}  // namespace ddp_doctor
