// SPDX-License-Identifier: BSD-3-Clause
// A set of ranks, stored as ranges: in a job of any size, the ranks that agree usually form a few
// ranges.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ddp_doctor {

class RankSet {
 public:
  RankSet() = default;
  // In any order.
  explicit RankSet(const std::vector<int>& ranks);
  // Parses what text() returns. Throws Error on anything else.
  static RankSet from(const std::string& text);

  // "0-7,12"; empty: "".
  std::string text() const;
  std::vector<int> list() const;
  std::size_t size() const;
  bool empty() const { return ranges_.empty(); }
  int first() const { return ranges_.front().first; }  // of one that is not empty
  int last() const { return ranges_.back().second; }
  int at(std::size_t position) const;  // less than size()
  bool contains(int rank) const;
  RankSet common(const RankSet& other) const;
  RankSet without(const RankSet& other) const;
  void add(const RankSet& other);
  auto operator<=>(const RankSet&) const = default;

 private:
  void normalize();  // sorts and merges the ranges

  std::vector<std::pair<int, int>> ranges_;  // first and last rank
};

}  // namespace ddp_doctor
