// A Python process's stack, as faulthandler writes it when the launcher asks for it before it ends
// a rank that does not move: rank-NNNNN.stack.
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

}  // namespace ddp_doctor
