// SPDX-License-Identifier: BSD-3-Clause
// Reads one rank's record, while it is being written or afterwards.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lib/error.h"
#include "lib/record/call_log.h"
#include "lib/record/packed.h"
#include "lib/record/record.h"

namespace ddp_doctor {

// A rank's record without its kept values.
struct RankRecord {
  RecordHeader header;
  std::vector<TensorInfo> tensors;
  std::vector<StepRecord> steps;  // ascending, without the values
  std::vector<DdpField> ddp_fields;
  std::vector<Event> events;
  std::vector<Site> sites;
  std::vector<Fact> facts;
  std::vector<LoggedCall>
      calls;  // the last ones; Timeline::load adds them, they are not in the record
};

// A record that cannot be read; no rule can work without it.
class RecordError : public Error {
  using Error::Error;
};

class RecordReader {
 public:
  // Throws RecordError, with the next action, if `file` is missing, not SQLite, truncated, not a
  // record, or of a schema version that this build does not know.
  explicit RecordReader(const std::filesystem::path& file);
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;

  // Its writer closed it: it no longer changes, and only one file must be kept open. If the writer
  // is running or was killed, there is also a log file.
  bool closed() const;
  RankRecord read() const;
  // Observations, samples and usages have only their roots.
  RankRecord read_outline() const;
  // The tensor data of each of `steps`, empty if there is none; holds no page of the file
  // afterwards.
  std::vector<std::optional<PackedRow>> seen(Slot slot,
                                             const std::vector<std::int64_t>& steps) const;
  // Only its root.
  std::optional<Root> root(std::int64_t step, Slot slot) const;
  // Of all steps in between, by step.
  std::map<std::int64_t, Root> roots(Slot slot, std::int64_t first, std::int64_t last) const;

  // The last examined step, and the digests of its weights by name, without those that lie on a
  // mesh: enough to see whether replicas differ during training.
  struct Weights {
    std::int64_t step = 0;
    std::map<std::string, std::array<std::uint8_t, 16>> bits;
  };
  std::int64_t last_examined_step() const;
  Weights weights(std::int64_t step) const;
  RecordHeader header() const;
  int tensor_id(const std::string& name) const;  // -1 if there is none

  // The kept elements of one observation, row-major; empty if they were not kept.
  std::vector<std::uint8_t> values(std::int64_t step, int tensor, Stage stage) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace ddp_doctor
