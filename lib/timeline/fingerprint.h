// SPDX-License-Identifier: BSD-3-Clause
// Compares two runs that should be equal: the bits of every gradient and weight, step by step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

class Fingerprint {
 public:
  using Bits = std::array<std::uint8_t, 16>;

  // By rank: the bits of what it had, and whether it took part in the loss; nothing where that was
  // not seen.
  using ByRank = std::vector<std::optional<Bits>>;
  struct Seen {
    ByRank gradient, weight;
    std::vector<std::optional<bool>> used;
  };
  // By step (0: before the first), then by the parameter's name.
  using Steps = std::map<std::int64_t, std::map<std::string, Seen>>;

  explicit Fingerprint(const Timeline& timeline) : Fingerprint(later(timeline)()) {}
  explicit Fingerprint(Steps steps) : steps_(std::move(steps)) {}

  // Made when it is called, from what it shares with the timeline, which it may outlive: most runs
  // are compared with none.
  static std::function<Fingerprint()> later(const Timeline& timeline);

  const Steps& steps() const { return steps_; }

  struct Place {
    std::int64_t step = 0;
    Stage stage = Stage::kGradient;
    int rank = 0;
    std::string parameter;
  };
  struct Comparison {
    std::size_t steps = 0;         // that both have
    std::size_t parameters = 0;    // that both have, by name
    std::optional<Place> parting;  // where they differ first; nothing: nowhere
  };
  // The weights before the first step too, as step 0. A rank that only one of them has is left out.
  static Comparison compare(const Fingerprint& a, const Fingerprint& b);

 private:
  Steps steps_;
};

}  // namespace ddp_doctor
