// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/uneven_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/timeline/left_out_steps.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMinRounds = 3;

// Steps that a rank took after the same collectives.
struct Round {
  std::int64_t collectives = 0;  // until then
  std::vector<std::int64_t> steps;
};

std::vector<Round> rounds_of(const RankRecord& record) {
  std::vector<Round> rounds;
  std::int64_t collectives = 0;
  for (const auto& step : record.steps) {
    if (step.step == 0) continue;
    collectives += step.collectives;
    if (rounds.empty() || step.collectives > 0) rounds.push_back({collectives, {}});
    rounds.back().steps.push_back(step.step);
  }
  return rounds;
}

}  // namespace

std::optional<std::string> keep_even_rounds(std::vector<RankRecord>& records) {
  std::vector<std::vector<Round>> rounds;
  for (const auto& record : records) {
    if (!record.ddp_fields.empty()) return {};
    rounds.push_back(rounds_of(record));
  }
  const auto fewest = std::ranges::min_element(rounds, {}, &std::vector<Round>::size);
  if (fewest == rounds.end() || fewest->size() < kMinRounds) return {};
  std::vector<std::size_t> kept;  // steps of each round
  std::size_t uneven = 0;
  for (std::size_t i = 0; i < fewest->size(); ++i) {
    std::size_t least = fewest->at(i).steps.size();
    std::size_t most = least;
    for (const auto& its : rounds) {
      if (its[i].collectives != fewest->at(i).collectives) return {};
      least = std::min(least, its[i].steps.size());
      most = std::max(most, its[i].steps.size());
    }
    kept.push_back(least);
    uneven += least < most ? 1 : 0;
  }
  if (uneven + 1 < kMinRounds) return {};
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    std::vector<std::int64_t> left_out;
    for (std::size_t i = 0; i < rounds[rank].size(); ++i) {
      const auto& steps = rounds[rank][i].steps;
      const auto from = i < kept.size() ? std::min(kept[i], steps.size()) : 0;
      left_out.insert(left_out.end(), steps.begin() + static_cast<std::ptrdiff_t>(from),
                      steps.end());
    }
    leave_out_steps(records[rank], left_out);
  }
  return fmt::format(
      "the ranks took different numbers of steps between the same collectives, in {} of {} rounds: "
      "of each round only as many as all took are compared",
      uneven, fewest->size());
}

}  // namespace ddp_doctor
