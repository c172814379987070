// SPDX-License-Identifier: BSD-3-Clause
// The call log: the last collectives that a rank issued, in order, beside its record. Where ranks
// wait for each other for ever, their logs say where they parted.
//
// The rank writes it through memory, as it does its progress map, so that it is complete whenever
// the rank dies or is ended. An entry is begun before the collective and ended after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/record/mapped_file.h"

namespace ddp_doctor {

struct LoggedCall {
  std::int64_t number = 0;  // among all entries of this rank, from 1
  // Among its collectives in `group`, from 1: what pairs it with those of other ranks. 0: it pairs
  // with none (a forward that synchronizes nothing, the end of a data loader, point-to-point).
  std::int64_t position = 0;
  std::int64_t step = 0;      // under way
  std::int64_t begin_ns = 0;  // CLOCK_MONOTONIC
  std::int64_t end_ns = 0;    // 0: it did not return, or did when issued and is waited for
  std::int64_t numel = 0;
  int line = 0;
  // "all_reduce", ... as in torch.distributed; "ddp.construct", "ddp.forward", "ddp.backward" of a
  // wrapper; "data.begin", "data.end": a pass of a data loader.
  std::string op;
  std::string reduce;  // "sum", ... where it has one; of a ddp.forward "no_grad" where that holds
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

  // Texts that are too long are cut. Returns the entry's number, for end().
  std::int64_t begin(const LoggedCall& call) noexcept;
  void end(std::int64_t number) noexcept;
  // An asynchronous one, which ended when it was issued: it is waited for now.
  void resume(std::int64_t number) noexcept;

 private:
  MappedFile map_;
};

// The call that a rank with this log is inside of, and that can make it wait for other ranks;
// nothing where there is none.
const LoggedCall* waits_in(const std::vector<LoggedCall>& calls);

// What is there, ascending: at most the last kCapacity. Empty if `file` is missing or foreign.
std::vector<LoggedCall> read_calls(const std::filesystem::path& file);

}  // namespace ddp_doctor
