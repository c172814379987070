// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/record.h"

#include <charconv>

namespace ddp_doctor {

std::optional<int> number_in(std::string_view text, std::string_view kind) {
  if (text.size() < kind.size() + 2 || !text.starts_with(kind) || text[kind.size()] != ' ')
    return {};
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + kind.size() + 1, end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace ddp_doctor
