// SPDX-License-Identifier: BSD-3-Clause
// Short windows into a log, and what stands in them. Nothing here looks further than it is told to,
// since a line may have any length.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "lib/explain/pasted_log.h"

namespace ddp_doctor {

// Calls use(what stands before, what stands after) for each place where `words` are; of both at
// most 600 letters.
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

// The number that `text` begins with, none below 0.
std::optional<long long> number_in(std::string_view text);

// As above, if it can be a rank or an index.
std::optional<int> small_number_in(std::string_view text);

// The number after `words`; the last one if there are several.
std::optional<int> number_after(std::string_view text, std::string_view words);

std::string_view last_of(std::string_view text, std::size_t letters);
std::string_view until(std::string_view text, std::string_view words);
std::string_view between(std::string_view text, std::string_view begin, std::string_view end);

// The label's rank is the job's; those in texts count the process group. But some labels count the
// node.
std::optional<int> rank_of(const LogStream& stream, std::optional<int> told);

}  // namespace ddp_doctor
