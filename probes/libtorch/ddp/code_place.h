// SPDX-License-Identifier: BSD-3-Clause
// A line of the user's program, as a report shows it. std::source_location, for compilers that lack
// it.
#pragma once

namespace ddp_doctor {

struct CodePlace {
  const char* file = "";
  int line = 0;

  // As a default argument: the line of the call.
  static constexpr CodePlace current(const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace ddp_doctor
