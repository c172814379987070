// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <ostream>
#include <string_view>

namespace ddp_doctor {

// Prints `text` in lines of at most 100 columns, broken between words: the first indented by
// `first` columns, the others by `others`.
void print_wrapped(std::ostream& out, std::string_view text, std::size_t first, std::size_t others);

}  // namespace ddp_doctor
