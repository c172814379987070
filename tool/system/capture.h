// SPDX-License-Identifier: BSD-3-Clause
// Runs a program to its end and returns its output, for short queries.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddp_doctor {

struct Answer {
  int status = -1;    // exit status; -1: not started, or ended by a signal
  bool late = false;  // did not end in time, and was ended
  std::string out;    // the first 64 KiB
  std::string err;
};

// `command[0]` is a path. Never throws.
Answer ask(const std::vector<std::string>& command, std::chrono::milliseconds deadline);

}  // namespace ddp_doctor
