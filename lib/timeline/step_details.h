// What was observed of the tensors in one step, by rank. What ranks and stages have in common, in a
// healthy run nearly everything, is kept once: a run of a thousand examined steps fits in memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "lib/record/record.h"

namespace ddp_doctor {

class StepDetails {
 public:
  StepDetails(std::size_t ranks, std::size_t tensors) : ranks_(ranks), tensors_(tensors) {}

  // Adds what `rank` saw. `ids`: by the rank's own ids, those of the run; -1: not to be looked at.
  void add(int rank, const StepRecord& seen, const std::vector<int>& ids);
  // Nothing more will be added.
  void complete();

  // Null, or nothing, where it was not seen.
  const TensorDigest* digest(int rank, int tensor, Stage stage) const;
  std::optional<Sample> sample(int rank, int tensor, Stage stage) const;
  const Usage* usage(int rank, int tensor) const;

 private:
  using Number = std::uint32_t;  // in a pool, from 1; 0: none

  // By rank and tensor, where anything was seen; by stage, because few stages are.
  using Places = std::vector<Number>;

  // Most elements are exact in single precision, and take half of the room.
  struct Values {
    std::uint32_t begin;
    std::uint16_t count;
    bool single;
  };

  Number add(const TensorDigest& digest);
  Number add(const std::vector<double>& values);
  bool equal(Number number, const TensorDigest& digest) const;
  bool equal(Number number, const std::vector<double>& values) const;
  std::vector<double> values_of(Number number) const;
  Number& place(Places& places, int rank, int tensor);
  Number at(const Places& places, int rank, int tensor) const;

  std::size_t ranks_;
  std::size_t tensors_;
  std::array<Places, kStages> digests_at_;
  std::array<Places, kStages> samples_at_;
  Places usages_at_;
  std::vector<TensorDigest> digests_;
  std::vector<Values> values_;
  std::vector<float> singles_;
  std::vector<double> doubles_;
  std::vector<Usage> usages_;

  // By stage and tensor, the last one that was added: what ranks and stages have in common is found
  // among these.
  struct Latest {
    std::vector<std::array<Number, kStages>> digests, samples;
    std::vector<Number> usages;
  };
  template <class Observed>
  Number known_or_added(const Observed& observed, std::array<Number, kStages>& latest, Stage stage);
  Latest latest_;
};

}  // namespace ddp_doctor
