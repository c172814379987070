// SPDX-License-Identifier: BSD-3-Clause
// The call log: the last collectives that a rank issued, in order, stored next to its record. If
// ranks wait for each other forever, their logs show where they diverged.
//
// The rank writes it to mapped memory, like its progress map, so it is complete whenever the rank
// crashes or is terminated. An entry starts before the collective and ends after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/record/mapped_file.h"

namespace ddp_doctor {

struct LoggedCall {
  std::int64_t number = 0;  // among all entries of this rank, from 1
  // Position among the rank's collectives in `group`, from 1; calls of other ranks with the same
  // position are paired with it. 0: not paired (a forward that synchronizes nothing, the end of a
  // data loader, point-to-point).
  std::int64_t position = 0;
  std::int64_t step = 0;      // the current step
  std::int64_t begin_ns = 0;  // CLOCK_MONOTONIC
  std::int64_t end_ns = 0;    // 0: it did not return, or did when issued and is waited for
  std::int64_t numel = 0;
  int line = 0;
  // "all_reduce", ... as in torch.distributed; "ddp.construct", "ddp.forward", "ddp.backward" of a
  // wrapper; "data.begin", "data.end": a pass of a data loader.
  std::string op;
  std::string reduce;  // "sum", ... or empty; "no_grad" for a ddp.forward under no_grad
  std::string dtype;
  std::string group;   // ranks: "0,1"; empty: all
  std::string moment;  // as Collective's
  std::string target;  // "gradient of NAME", "weight of NAME", "wrapper 0"
  std::string file;    // the user's
};

class CallLog {
 public:
  static constexpr std::int64_t kCapacity = 1000;

  // Creates or truncates `file`; throws Error if that is impossible.
  explicit CallLog(const std::filesystem::path& file);

  // Truncates texts that are too long. Returns the entry's number, for end().
  std::int64_t begin(const LoggedCall& call) noexcept;
  void end(std::int64_t number) noexcept;
  // An asynchronous call, which ended when it was issued, is waited for now.
  void resume(std::int64_t number) noexcept;

 private:
  MappedFile map_;
};

// The unfinished call that can make the rank wait for other ranks; null if there is none.
const LoggedCall* waits_in(const std::vector<LoggedCall>& calls);

// The entries, ascending: at most the last kCapacity. Empty if `file` is missing or not a call log.
std::vector<LoggedCall> read_calls(const std::filesystem::path& file);

}  // namespace ddp_doctor
