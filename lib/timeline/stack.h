// SPDX-License-Identifier: BSD-3-Clause
// The stacks of a rank that is terminated because it makes no progress: of a Python process from
// faulthandler (rank-NNNNN.stack), and of native code from eu-stack or gdb
// (rank-NNNNN.native-stack).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ddp_doctor {

struct Frame {
  std::string file;
  int line = 0;
  std::string function;

  bool of_the_user() const;  // neither Python's own nor of an installed package
};

// The main thread's frames, innermost first; empty if the text has none.
std::vector<Frame> main_thread(std::string_view text);
std::vector<Frame> read_stack(const std::filesystem::path& file);

// The functions of the first thread, innermost first, without their arguments.
std::vector<std::string> native_functions(std::string_view text);
std::vector<std::string> read_native_stack(const std::filesystem::path& file);

}  // namespace ddp_doctor
