// SPDX-License-Identifier: BSD-3-Clause
// The command line as a function, so that tests run whole command lines in-process.
#pragma once

#include <iostream>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

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

// Runs `ddp-doctor ARGS...` and returns its exit code; never throws.
int run_doctor(std::vector<std::string> args, Streams streams);

}  // namespace ddp_doctor
