// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/data_overlap.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace ddp_doctor {
namespace {

constexpr std::size_t kFewest = 16;  // samples of a rank in a pass
// Samples drawn with replacement come twice to one rank before that many come to two.
constexpr std::size_t kCommon = 8;

using Samples = std::vector<std::int64_t>;      // by their checksums
using OfRanks = std::map<int, Samples>;         // in one step
using Steps = std::map<std::int64_t, OfRanks>;  // by number

// The samples of each step that all ranks were seen to be given, in consecutive steps from the
// first one on. Nothing if several in one step are equal: they are no good to tell passes by.
Steps samples_of(const Timeline& timeline) {
  Steps steps;
  for (const int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr) return {};
    for (const auto& fact : record->facts) {
      if (fact.subject != "inputs" || fact.key != "samples") continue;
      Samples& samples = steps[fact.step][rank];
      for (const auto& checksum : nlohmann::json::parse(fact.value, nullptr, false)) {
        if (checksum.is_number_integer()) samples.push_back(checksum);
      }
      if (std::set(samples.begin(), samples.end()).size() < samples.size()) return {};
    }
  }
  auto end = steps.begin();
  for (std::int64_t number = 0; end != steps.end(); ++end) {
    const bool follows = end == steps.begin() || end->first == number + 1;
    if (!follows || end->second.size() < timeline.ranks().size()) break;
    number = end->first;
  }
  steps.erase(end, steps.end());
  return steps;
}

// What ranks were given since the data began anew.
struct Pass {
  std::int64_t first_step = 0, last_step = 0;
  std::map<int, std::set<std::int64_t>> by_rank;

  bool has(int rank, std::int64_t sample) const {
    const auto of_rank = by_rank.find(rank);
    return of_rank != by_rank.end() && of_rank->second.contains(sample);
  }
  bool has(std::int64_t sample) const {
    return std::ranges::any_of(by_rank, [&](const auto& of) { return of.second.contains(sample); });
  }
  // A rank is given a sample again; or most samples have come to some rank, as where each takes
  // another part of the data now.
  bool ends_before(const OfRanks& given) const {
    std::size_t count = 0, known = 0;
    for (const auto& [rank, samples] : given) {
      for (const auto sample : samples) {
        if (has(rank, sample)) return true;
        known += has(sample) ? 1 : 0;
        ++count;
      }
    }
    return 10 * known >= 8 * count;
  }
};

std::optional<DataOverlap> overlap_in(const Pass& pass) {
  if (pass.last_step == pass.first_step) return {};  // one batch, again and again
  for (auto one = pass.by_rank.begin(); one != pass.by_rank.end(); ++one) {
    for (auto other = std::next(one); other != pass.by_rank.end(); ++other) {
      const auto common = static_cast<std::size_t>(std::ranges::count_if(
          one->second, [&](std::int64_t sample) { return other->second.contains(sample); }));
      const std::size_t each = std::min(one->second.size(), other->second.size());
      if (each >= kFewest && common >= kCommon && 20 * common >= each)
        return DataOverlap{
            {one->first, other->first}, pass.first_step, pass.last_step, common, each};
    }
  }
  return {};
}

}  // namespace

std::optional<DataOverlap> overlap_of_data(const Timeline& timeline) {
  Pass pass;
  for (const auto& [number, given] : samples_of(timeline)) {
    if (!pass.by_rank.empty() && pass.ends_before(given)) {
      if (auto overlap = overlap_in(pass)) return overlap;
      pass = {};
    }
    if (pass.by_rank.empty()) pass.first_step = number;
    pass.last_step = number;
    for (const auto& [rank, samples] : given)
      pass.by_rank[rank].insert(samples.begin(), samples.end());
  }
  return overlap_in(pass);
}

}  // namespace ddp_doctor
