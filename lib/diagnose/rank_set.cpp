// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/rank_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

int number_in(std::string_view text, const std::string& whole) {
  int number = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0)
    throw Error(fmt::format("\"{}\" is not a list of ranks such as \"0-7,12\"", whole));
  return number;
}

}  // namespace

RankSet::RankSet(const std::vector<int>& ranks) {
  for (const int rank : ranks) ranges_.emplace_back(rank, rank);
  normalize();
}

RankSet RankSet::from(const std::string& text) {
  RankSet set;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto range = std::string_view(text).substr(begin, end - begin);
    const auto dash = std::min(range.find('-'), range.size());
    const int first = number_in(range.substr(0, dash), text);
    const int last = dash == range.size() ? first : number_in(range.substr(dash + 1), text);
    if (last < first)
      throw Error(fmt::format("\"{}\" is not a list of ranks such as \"0-7,12\"", text));
    set.ranges_.emplace_back(first, last);
    begin = end + 1;
  }
  set.normalize();
  return set;
}

void RankSet::normalize() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<int, int>> settled;
  for (const auto& range : ranges_) {
    if (settled.empty() || range.first > settled.back().second + 1) {
      settled.push_back(range);
    } else {
      settled.back().second = std::max(settled.back().second, range.second);
    }
  }
  ranges_ = std::move(settled);
}

std::string RankSet::text() const {
  std::string text;
  for (const auto& [first, last] : ranges_) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

std::vector<int> RankSet::list() const {
  std::vector<int> ranks;
  for (const auto& [first, last] : ranges_) {
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

std::size_t RankSet::size() const {
  std::size_t size = 0;
  for (const auto& [first, last] : ranges_) size += static_cast<std::size_t>(last - first) + 1;
  return size;
}

int RankSet::at(std::size_t position) const {
  for (const auto& [first, last] : ranges_) {
    const auto here = static_cast<std::size_t>(last - first) + 1;
    if (position < here) return first + static_cast<int>(position);
    position -= here;
  }
  throw Error("rank position out of range");
}

bool RankSet::contains(int rank) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.first <= rank && rank <= range.second;
  });
}

RankSet RankSet::common(const RankSet& other) const {
  RankSet both;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const int first = std::max(a->first, b->first);
    const int last = std::min(a->second, b->second);
    if (first <= last) both.ranges_.emplace_back(first, last);
    a->second < b->second ? void(++a) : void(++b);
  }
  return both;
}

RankSet RankSet::without(const RankSet& other) const {
  RankSet left;
  for (auto [first, last] : ranges_) {
    for (const auto& [from, to] : other.ranges_) {
      if (to < first || from > last) continue;
      if (from > first) left.ranges_.emplace_back(first, from - 1);
      first = to + 1;
    }
    if (first <= last) left.ranges_.emplace_back(first, last);
  }
  return left;
}

void RankSet::add(const RankSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

}  // namespace ddp_doctor
