// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/record.h"

#include <algorithm>
#include <charconv>

namespace ddp_doctor {
namespace {

std::optional<int> number(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<int> number_in(std::string_view text, std::string_view kind) {
  if (text.size() < kind.size() + 2 || !text.starts_with(kind) || text[kind.size()] != ' ')
    return {};
  return number(text.substr(kind.size() + 1));
}

std::vector<int> ranks_in(std::string_view group) {
  std::vector<int> ranks;
  while (!group.empty()) {
    const auto end = std::min(group.find(','), group.size());
    if (const auto rank = number(group.substr(0, end))) ranks.push_back(*rank);
    group.remove_prefix(std::min(end + 1, group.size()));
  }
  return ranks;
}

}  // namespace ddp_doctor
