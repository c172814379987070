// SPDX-License-Identifier: BSD-3-Clause
// Reads one rank's record, while it is being written or long after.
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
  std::vector<StepRecord> steps;  // ascending, the values left out
  std::vector<DdpField> ddp_fields;
  std::vector<Event> events;
  std::vector<Site> sites;
  std::vector<Fact> facts;
  std::vector<LoggedCall>
      calls;  // the last ones; Timeline::load adds them, they are not in the record
};

// A record that cannot be read: no rule can do without.
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

  // Its writer closed it: nothing in it changes any more, and it takes one file to keep it open.
  // Beside the record of a writer that is at work or was killed lies a log.
  bool closed() const;
  RankRecord read() const;
  // Of observations, samples and usages only the roots.
  RankRecord read_outline() const;
  // What was seen in each of `steps`, nothing where nothing was; holds no page of the file
  // afterwards.
  std::vector<std::optional<PackedRow>> seen(Slot slot,
                                             const std::vector<std::int64_t>& steps) const;
  // Only its root.
  std::optional<Root> root(std::int64_t step, Slot slot) const;
  // Of all steps in between, by step.
  std::map<std::int64_t, Root> roots(Slot slot, std::int64_t first, std::int64_t last) const;

  // The last step whose tensors were looked at, and the digests of its weights by name: enough to
  // see whether replicas differ while they still train.
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
