// SPDX-License-Identifier: BSD-3-Clause
// The progress map: a small memory-mapped file per rank that says what the rank is doing right now,
// what the watcher would like it to leave in its record, and a digest of its state for its peers.
//
// The rank writes it with plain stores, no system call and no lock, from any thread; whoever
// watches reads the same file. Torn reads are harmless: every field is a single aligned word.
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
};

const char* name_of(Phase phase);

struct Progress {
  Phase phase = Phase::kStarting;
  std::int64_t step = 0;
  std::int64_t changed_ns = 0;  // CLOCK_MONOTONIC, of the last change; 0 before the first
};

// How far somebody who watches the run has compared the replicas (lib/timeline/replica_watch.h).
struct Watched {
  bool by_somebody = false;
  std::int64_t until = 0;                  // so far the replicas have been compared
  std::optional<std::int64_t> differs_at;  // the first step at which they differ
};

struct ProgressMap;  // what the file holds

class ProgressWriter {
 public:
  // Creates or truncates `file`; throws Error if that is impossible.
  explicit ProgressWriter(const std::filesystem::path& file);

  void enter(Phase phase, std::int64_t step) noexcept;
  // The step of which the watcher would like to have values; 0: none (replica_watch.h).
  std::int64_t wanted_step() const noexcept;
  // How far the watcher has compared the replicas.
  Watched watched() const noexcept;
  // Lets peers compare their state after `step` with this rank's. The last two are there: whoever
  // publishes waits for its peers, or does without them.
  void publish_state(std::int64_t step, std::uint64_t digest) noexcept;
  Phase phase() const noexcept;
  std::int64_t step() const noexcept;

 private:
  MappedFile file_;
  ProgressMap* map_;
};

// The rank's present state; a file that is missing, short or foreign reads as the default Progress.
Progress read_progress(const std::filesystem::path& file) noexcept;

// What the rank published of `step`; nothing before it did, and after it published two more.
std::optional<std::uint64_t> published_state(const std::filesystem::path& file,
                                             std::int64_t step) noexcept;

// Tells the rank how far its replicas have been compared, and where they differ.
bool tell_watched(const std::filesystem::path& file, const Watched& watched) noexcept;
// Asks the rank for values of `step`. False if there is no such map. The rank is not made to wait.
bool ask_for_values(const std::filesystem::path& file, std::int64_t step) noexcept;

}  // namespace ddp_doctor
