// SPDX-License-Identifier: BSD-3-Clause
// Writes one rank's record. There is one transaction per examined step; other steps wait for it in
// a file that outlives the process (waiting_steps.h). A process killed at any time loses at most
// the current step. Readers never block the writer (SQLite's WAL), so no rank waits for a watcher.
// One thread at a time; a process forked from the writer's gets an Error.
#pragma once

#include <filesystem>
#include <memory>

#include "lib/record/record.h"
#include "lib/record/thinning.h"

namespace ddp_doctor {

class RecordWriter {
 public:
  // Creates `folder` (mode 0700) if needed and rank-NNNNN.sqlite in it. Throws Error if the folder
  // is not writable, the disk is full, or the file already exists. `most_bytes` of what is seen of
  // tensors: beyond that, old healthy steps become steps that were not examined.
  RecordWriter(const std::filesystem::path& folder, const RecordHeader& header,
               std::int64_t most_bytes = Thinning::kMaxBytes);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Each of these is one transaction, throws Error if it could not be stored, and leaves the record
  // as it was before the call in that case.
  void write_tensors(const std::vector<TensorInfo>& tensors);  // replaces those of the same id
  void write_step(const StepRecord& step, const Watched& watched = {});
  void write_ddp_fields(
      const std::vector<DdpField>& fields);  // replaces fields of the same moment, key and wrapper
  void write_event(const Event& event);
  void write_site(const Site& site);
  void write_fact(const Fact& fact);

  // Closes the file in a state that needs no recovery. Called by the destructor, errors ignored.
  void close();

 private:
  struct Database;
  Database& open();  // throws Error after close(), and in a process forked from the writer's
  std::unique_ptr<Database> database_;
};

std::filesystem::path record_file(const std::filesystem::path& folder, int rank);
std::filesystem::path progress_file(const std::filesystem::path& folder, int rank);
std::filesystem::path calls_file(const std::filesystem::path& folder, int rank);
std::filesystem::path steps_file(const std::filesystem::path& folder, int rank);
std::filesystem::path stack_file(const std::filesystem::path& folder, int rank);
std::filesystem::path native_stack_file(const std::filesystem::path& folder, int rank);

}  // namespace ddp_doctor
