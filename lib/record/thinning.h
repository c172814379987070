// SPDX-License-Identifier: BSD-3-Clause
// Decides which examined steps a record may delete, so that it does not grow without bound: the
// older the healthy steps, the fewer are kept. The record's writer deletes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "lib/record/progress.h"

namespace ddp_doctor {

class Thinning {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{600} << 20;
  static constexpr std::size_t kFirst = 32;     // examined steps that are always kept: the first,
  static constexpr std::size_t kLatest = 64;    // the last,
  static constexpr std::size_t kFinding = 64;   // those from where replicas differ,
  static constexpr std::size_t kUnusual = 256;  // and those where something else was unusual

  explicit Thinning(std::int64_t most_bytes = kMaxBytes) : most_bytes_(most_bytes) {}

  // An examined step that takes `bytes`, in the order of steps.
  void add(std::int64_t step, std::int64_t bytes, bool unusual);
  // A step to delete now, or nothing if there is room or all must stay; call it until it returns
  // nothing. Without a watcher, every step counts as healthy.
  std::optional<std::int64_t> next(const Watched& watched);

  std::int64_t forgotten() const { return forgotten_; }

 private:
  struct Examined {
    std::int64_t ordinal;
    std::int64_t step;
    std::int64_t bytes;
    bool unusual;
  };
  bool may_go(const Examined& examined) const;

  std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  std::int64_t count_ = 0;
  std::size_t unusual_ = 0;
  std::int64_t forgotten_ = 0;
  std::int64_t stride_ = 2;  // of the steps that cursor_ has passed, every stride_-th is left
  std::size_t cursor_ = 0;
  std::optional<std::int64_t> finding_;  // ordinal of the first step at which replicas differ
  std::deque<Examined> steps_;           // beyond the first ones
};

}  // namespace ddp_doctor
