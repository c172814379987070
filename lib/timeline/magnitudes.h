// SPDX-License-Identifier: BSD-3-Clause
// Compares two runs that compute the same and round differently, as on another processor or with
// another torch: by the norm of every gradient and weight and a few of its elements.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

class Magnitudes {
 public:
  struct Measured {
    double norm = 0.0;  // L2
    SampledValues sample;
  };
  // By rank: nothing where it was not seen.
  using ByRank = std::vector<std::optional<Measured>>;
  struct Seen {
    ByRank gradient, weight;
    const ByRank& at(Stage stage) const { return stage == Stage::kWeight ? weight : gradient; }
  };
  // By step (0: before the first), then by the parameter's name.
  using Steps = std::map<std::int64_t, std::map<std::string, Seen>>;

  explicit Magnitudes(const Timeline& timeline) : Magnitudes(later(timeline)()) {}
  explicit Magnitudes(Steps steps) : steps_(std::move(steps)) {}

  // As Fingerprint::later().
  static std::function<Magnitudes()> later(const Timeline& timeline);

  const Steps& steps() const { return steps_; }

 private:
  Steps steps_;
};

// How far two tensors are apart, relative to their norm. What is less than rounding leaves of all
// tensors of the stage together counts as zero.
struct Distance {
  double norm = 0.0;    // between their norms
  double sample = 0.0;  // L2, between the elements that were sampled
};
struct Distances {
  // Of the rank where they are farthest apart, by step and by the parameter's name.
  using Steps = std::map<std::int64_t, std::map<std::string, Distance>>;
  Steps gradient, weight;

  Distances() = default;
  // Of the steps, parameters and ranks that both have.
  Distances(const Magnitudes& a, const Magnitudes& b);

  const Steps& at(Stage stage) const { return stage == Stage::kWeight ? weight : gradient; }
  Steps& at(Stage stage) { return stage == Stage::kWeight ? weight : gradient; }
};

}  // namespace ddp_doctor
