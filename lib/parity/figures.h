// SPDX-License-Identifier: BSD-3-Clause
// What the reference of `ddp-doctor parity` measured (probes/python/ddp_doctor_parity): gradients
// of the ranks and of one process on the same samples, by their inner products.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/parity/products.h"

namespace ddp_doctor {

// The vectors of which there are products.
inline constexpr std::size_t kOfRanks = 0;   // synchronized, as the ranks' optimizers got it
inline constexpr std::size_t kOfOne = 1;     // of one process on the samples of all ranks
inline constexpr std::size_t kPermuted = 2;  // the same, on these samples in another order
inline constexpr std::size_t kAlone = 3;  // the first of those of one process on one rank's samples

struct ParityParameter {
  std::string name;
  Products products;
  std::optional<int> rank = {};  // the only one that has it, as of an expert
};

struct ParityStep {
  std::int64_t step = 0;
  // Of the gradients of one rank's samples, or of one of its micro-batches, alone: the rank. Rank
  // by rank, and of each as many.
  std::vector<int> alone;
  // The vector of one of them, and that of the same with its samples padded as in the joined ones.
  struct Padded {
    std::size_t alone, padded;
  };
  std::optional<Padded> padded;
  std::optional<std::size_t> again;  // the vector of the same as kOfOne, in a later step of it
  bool apart = false;                // ranks stepped with gradients of their own
  std::vector<ParityParameter> parameters;
  std::vector<std::string> not_told;  // whose gradients could not be put together from the shards
  std::vector<double> rank_losses;    // mean over micro-batches
  double loss = 0.0;                  // of one process
  // What a loss may weigh by, for each of these: "samples", "labels that are not -100".
  std::map<std::string, std::vector<double>> counts;
  struct Module {
    std::string name, type;  // type "input": the model gets other inputs
    double distance = 0.0;   // relative
  };
  std::optional<Module> module;  // the first whose outputs differ
};

struct ParityFigures {
  std::string impossible;  // why there is nothing to compare; then the rest is empty
  std::vector<ParityStep> steps;
  std::vector<std::string> random;  // where the ranks' program drew random numbers
  // Types of modules whose frozen weights are not the same on all ranks.
  std::vector<std::string> frozen_differ;
  bool dealt = false;          // as one process the program took the samples of all ranks by itself
  bool low_precision = false;  // float16 or bfloat16 in the forward
};

// Figures of nothing, and why.
void write_impossible(const std::filesystem::path& file, const std::string& reason);

// Throws Error if the file is missing, damaged or of another version.
ParityFigures load_parity_figures(const std::filesystem::path& file);

}  // namespace ddp_doctor
