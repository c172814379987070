// SPDX-License-Identifier: BSD-3-Clause
// Where a command reads and writes, and how it ends.
#pragma once

#include <iostream>
#include <istream>
#include <ostream>
#include <stdexcept>

namespace ddp_doctor {

// `out` gets the result, `err` messages and progress; `in` is standard input.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  std::istream& in = std::cin;
};

namespace exit_code {
inline constexpr int kHealthy = 0;
inline constexpr int kSick = 1;
inline constexpr int kCouldNotRun = 2;
inline constexpr int kInconclusive = 3;
inline constexpr int kInterrupted = 130;
inline constexpr int kCannotTell = 125;  // in the words of `git bisect run`

// git reads any code from 1 to 127 but 125 as bad, so anything that is not a verdict becomes 125.
constexpr int for_bisect(int code) {
  return code == kHealthy || code == kSick || code == kInterrupted ? code : kCannotTell;
}
}  // namespace exit_code

// Thrown if the user interrupts the examination (Ctrl-C); becomes exit code 130.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ddp_doctor
