// SPDX-License-Identifier: BSD-3-Clause
// Reads short windows of a log. Nothing here reads beyond its window, since a line may have any
// length.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "lib/explain/pasted_log.h"

namespace ddp_doctor {

// Calls use(text before, text after) for each place where `words` occur, with at most 600
// characters each.
template <class Use>
void each_window(const LogStream& stream, std::string_view words, Use use) {
  constexpr std::size_t kWindow = 600;
  const std::string_view text = stream.text;
  for (auto at = text.find(words); at != std::string_view::npos;
       at = text.find(words, at + words.size())) {
    const auto begin = at - std::min(at, kWindow);
    use(text.substr(begin, at - begin), text.substr(at + words.size(), kWindow));
  }
}

// The number at the start of `text`; nothing if it is negative.
std::optional<long long> number_in(std::string_view text);

// As above, if it can be a rank or an index.
std::optional<int> small_number_in(std::string_view text);

// The number after `words`; the last one if there are several.
std::optional<int> number_after(std::string_view text, std::string_view words);

std::string_view last_of(std::string_view text, std::size_t letters);
std::string_view until(std::string_view text, std::string_view words);
std::string_view between(std::string_view text, std::string_view begin, std::string_view end);

// A label has the rank in the job, the text has the rank in the process group. But some labels
// count the ranks of one node only; then the text is used.
std::optional<int> rank_of(const LogStream& stream, std::optional<int> rank_in_text);

}  // namespace ddp_doctor
