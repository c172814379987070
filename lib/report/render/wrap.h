// SPDX-License-Identifier: BSD-3-Clause
// Lines of at most 100 columns.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace ddp_doctor {

inline constexpr std::size_t kTextWidth = 100;

// Prints `text`, broken between words: the first line indented by `first` columns, the others by
// `others`.
void print_wrapped(std::ostream& out, std::string_view text, std::size_t first, std::size_t others);

// Prints `entries` down and then across, in as many columns as fit; those too long for a column
// stand below, one by one.
void print_columns(std::ostream& out, const std::vector<std::string>& entries);

// At most `max_size` characters, cut between words and ended by "...".
std::string shortened(const std::string& text, std::size_t max_size);

}  // namespace ddp_doctor
