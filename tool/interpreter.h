// SPDX-License-Identifier: BSD-3-Clause
// Which Python runs the user's program: the first that has torch, told without importing it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp_doctor {

struct Interpreter {
  std::string found_as;        // "--python", "$VIRTUAL_ENV", "python3 on PATH", ...
  std::filesystem::path path;  // empty: there is none
  std::string python;          // its version
  std::string torch;           // torch's version; empty: it has none
  std::string why_not;         // why it cannot be taken; empty: it can
};

// All that come into question, in order of preference; `given` (--python) alone where it is not
// empty.
std::vector<Interpreter> interpreters(const std::string& given);

// The first that has torch. Throws Error that says why each of them was not taken.
Interpreter choose_interpreter(const std::string& given);

// An executable by its path, or by its name on PATH; empty if there is none.
std::filesystem::path find_executable(const std::string& name);

}  // namespace ddp_doctor
